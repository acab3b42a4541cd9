"""The demo: JupyterLab with GPUs on a slider, for a person or (`--check`) without one. Started by `scripts/demo`."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.lib.lab import Lab, LabError, running  # noqa: E402 - started as a file

IMAGES = ROOT / ".cache" / "demo"
CHECK_SECONDS = 20
"""How long the cell runs in which the check drags the slider; a person has the minute that the notebook says."""


def main() -> int:
    """Exit status 0 if the person ended it, or if everything that `--check` looks at is true."""
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
    with tempfile.TemporaryDirectory(prefix="jupyter-gpu-demo.", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        text = notebook(CHECK_SECONDS if options.check else None)
        try:
            with in_cluster(folder, text) if options.cluster else here(folder, text, real=options.real) as lab:
                return check(lab, options.pictures) if options.check else show(lab)
        except LabError as error:
            print(f"\n{error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nEnded.")
            return 130 if options.check else 0


def end(number: int, _: FrameType | None) -> None:
    """A polite signal ends the demo as Ctrl-C does: in order."""
    raise KeyboardInterrupt(number)


def notebook(seconds: int | None) -> str:
    """The demo notebook, with another duration of its long cell if `seconds` is given."""
    text = (ROOT / "binder" / "demo.ipynb").read_text()
    if seconds is None:
        return text
    assert "seconds = 60" in text
    return text.replace("seconds = 60", f"seconds = {seconds}")


def here(folder: Path, text: str, *, real: bool) -> AbstractContextManager[Lab]:
    """JupyterLab on this machine."""
    (folder / "work").mkdir()
    (folder / "work" / "demo.ipynb").write_text(text)
    simulated = ["--GpuExtension.simulated_gpus=4", f"--GpuExtension.state_dir={folder}/gpu"]
    return running(folder, *([] if real else simulated), "--LabApp.expose_app_in_browser=True")


def in_cluster(folder: Path, text: str) -> AbstractContextManager[Lab]:
    """JupyterLab in a pod."""
    from scripts.lib import cluster_lab

    return cluster_lab.running(folder, {"demo.ipynb": text})


def describe(lab: Lab) -> str:
    """What the GPUs are, and whether they are guarded. Raises LabError with the reason where they cannot be used."""
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


def show(lab: Lab) -> int:
    """Open the page, and wait until the person ends it or the server ends by itself."""
    page = lab.page("lab/tree/demo.ipynb")
    print(f"\n{describe(lab)}\n\nJupyterLab is here; Ctrl-C ends it:\n\n    {page}\n", flush=True)
    opener = shutil.which("xdg-open")
    if opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, lab.pid, os.WEXITED | os.WNOWAIT)
    print(f"JupyterLab ended by itself. The end of its log:\n{lab.log.read_text()[-4000:]}", file=sys.stderr)
    return 1


def check(lab: Lab, pictures: bool) -> int:
    """Drag the slider in a real browser; the browser's script says what it sees."""
    print(describe(lab), flush=True)
    IMAGES.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("demo_check.mjs")
    mode = lab.json("jupyter-gpu/api/v1/status")["mode"]
    words = [lab.page("lab/tree/demo.ipynb"), mode, IMAGES, *(["pictures"] if pictures else [])]
    status = subprocess.run(["node", script, *words], check=False).returncode
    if status:
        print(f"The end of the server's log:\n{lab.log.read_text()[-4000:]}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
