"""The demo, for a person or (`--check`) without one: GPUs on a slider, and a GPU that two notebooks share.

Started by `scripts/demo`.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.lib.demo_sharing import Sharing, sharing  # noqa: E402 - started as a file
from scripts.lib.lab import Lab, LabError, running  # noqa: E402

IMAGES = ROOT / ".cache" / "demo"
CHECK_SECONDS = 600
"""The longest the cell runs in which the check drags the slider, in seconds; without the check it is a minute."""


def main() -> int:
    """Return 0 if the user ended the demo, or if all checks of `--check` passed."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Opens JupyterLab with GPUs on a slider.")
    parser.add_argument("--real", action="store_true", help="this machine's GPUs, instead of four simulated ones")
    parser.add_argument("--check", action="store_true", help="drag the slider without a person, and look at the kernel")
    parser.add_argument("--pictures", action="store_true", help="with --check: take those of the documentation, too")
    parser.add_argument("--cluster", action="store_true", help="in a pod of a Kubernetes cluster that is made for it")
    options = parser.parse_args()
    if options.cluster and options.real:
        parser.error("the nodes of the demo's cluster have simulated GPUs: --cluster and --real exclude each other")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix="gpu-demo.", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        text = notebook(CHECK_SECONDS if options.check else None)
        try:
            with ExitStack() as stack:
                where = in_cluster(folder, text) if options.cluster else here(folder, text, real=options.real)
                lab, shared = stack.enter_context(where), None
                if not (options.cluster or options.real):
                    shared = stack.enter_context(sharing(folder / "s", brief=options.check))
                return check(lab, shared, options.pictures) if options.check else show(lab, shared)
        except LabError as error:
            print(f"\n{error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nEnded.")
            return 130 if options.check else 0


def end(number: int, _: FrameType | None) -> None:
    """End the demo on SIGTERM in the same order as on Ctrl-C."""
    raise KeyboardInterrupt(number)


def notebook(seconds: int | None) -> str:
    """Return the demo notebook, with another duration of its long cell if `seconds` is given."""
    text = (ROOT / "binder" / "demo.ipynb").read_text()
    if seconds is None:
        return text
    assert "seconds = 60" in text
    return text.replace("seconds = 60", f"seconds = {seconds}")


def here(folder: Path, text: str, *, real: bool) -> AbstractContextManager[Lab]:
    """Run JupyterLab on this machine."""
    (folder / "work").mkdir()
    (folder / "work" / "demo.ipynb").write_text(text)
    simulated = ["--GpuExtension.simulated_gpus=4", f"--GpuExtension.state_dir={folder}/gpu"]
    return running(folder, *([] if real else simulated), "--LabApp.expose_app_in_browser=True")


def in_cluster(folder: Path, text: str) -> AbstractContextManager[Lab]:
    """Run JupyterLab in a pod."""
    from scripts.lib import cluster_lab

    return cluster_lab.running(folder, {"demo.ipynb": text})


def describe(lab: Lab) -> str:
    """Describe the GPUs and whether they are guarded. Raises LabError with the reason if they cannot be used."""
    try:
        status = lab.json("jupyter-gpu/api/v1/status")
    except urllib.error.HTTPError as error:
        raise LabError(f"The GPUs cannot be used: {error.read().decode(errors='replace')}") from error
    gpus = "simulated GPUs" if status["simulated"] else "GPUs"
    if status["mode"] == "enforced":
        guard = "The kernel of the operating system guards them."
    else:
        guard = "Soft mode: nothing keeps programs from opening GPUs that are not theirs (that needs root)."
    return f"{status['total'] / 1000:g} {gpus}. {guard}"


def show(lab: Lab, shared: Sharing | None) -> int:
    """Open the page, and wait until the user ends the demo or the server ends."""
    page = lab.page("lab/tree/demo.ipynb")
    print(f"\n{describe(lab)}\n\nJupyterLab is here; Ctrl-C ends it:\n\n    {page}\n", flush=True)
    if shared:
        print("Two notebooks that share one GPU; open both, side by side, and begin with the training:\n")
        print("".join(f"    {address}\n" for address in [*shared.pages().values()][::-1]), flush=True)
    opener = shutil.which("xdg-open")
    if opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, lab.pid, os.WEXITED | os.WNOWAIT)
    print(f"JupyterLab ended by itself. The end of its log:\n{end_of_log(lab)}", file=sys.stderr)
    return 1


def check(lab: Lab, shared: Sharing | None, pictures: bool) -> int:
    """Check both parts in a real browser; its scripts print what they see."""
    print(describe(lab), flush=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    mode = lab.json("jupyter-gpu/api/v1/status")["mode"]
    status = in_browser("demo_check.mjs", [lab.page("lab/tree/demo.ipynb"), mode], [lab], pictures=pictures)
    if status or not shared:
        return status
    print("\nTwo notebooks share one simulated GPU.", flush=True)
    labs = [shared.exploring, shared.training]
    return in_browser("demo_sharing.mjs", shared.pages().values(), labs, pictures=pictures) or alone(shared)


def in_browser(script: str, words: Iterable[str], labs: Iterable[Lab], *, pictures: bool) -> int:
    """Return the exit status of a browser script; after an error, print the servers' logs as well."""
    file = str(Path(__file__).with_name(script))
    command = ["node", file, *words, str(IMAGES), *(["pictures"] if pictures else [])]
    status = subprocess.run(command, check=False).returncode
    if status:
        for lab in labs:
            print(f"The end of the log of {lab.url}:\n{end_of_log(lab)}", file=sys.stderr)
    return status


def alone(shared: Sharing) -> int:
    """Return 0 if no two programs were ever on the GPU at once, according to the simulated GPU."""
    sums = shared.sums()
    said = (
        f"{sums.launches} kernels in {sums.busy / 1e6:.1f} s, {sums.overlaps} of them while the other's work was there"
    )
    print(f"The GPU itself says: {said}.")
    return int(sums.overlaps > 0 or sums.launches < 1000)


def end_of_log(lab: Lab) -> str:
    """Return the end of a server's log."""
    return lab.log.read_text(errors="replace")[-4000:]


if __name__ == "__main__":
    sys.exit(main())
