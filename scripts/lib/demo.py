"""The demo, for a person or (`--check`) without one: GPUs on a slider, a GPU that two notebooks share, limits of users.

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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from scripts.lib.demo_sharing import Sharing, sharing  # noqa: E402 - started as a file
from scripts.lib.lab import Lab, LabError, running  # noqa: E402

if TYPE_CHECKING:
    from scripts.lib.demo_hub import Hub
    from scripts.lib.demo_other_node import OtherNode

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
    parser.add_argument("--hub", action="store_true", help="a JupyterHub on such a cluster, with the page GPU limits")
    options = parser.parse_args()
    if options.real and (options.cluster or options.hub):
        parser.error("the nodes of the demo's cluster have simulated GPUs: --real excludes --cluster and --hub")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix="gpu-demo.", ignore_cleanup_errors=True) as name:
        try:
            with parts(Path(name), options) as demo:
                return check(demo, options.pictures) if options.check else show(demo)
        except LabError as error:
            print(f"\n{error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nEnded.")
            return 130 if options.check else 0


@dataclass(frozen=True)
class Demo:
    """The parts that run."""

    lab: Lab | None
    """The server with the slider."""
    shared: Sharing | None = None
    """Two servers that share a GPU."""
    other: "OtherNode | None" = None
    """A notebook that uses GPUs of another node."""
    hub: "Hub | None" = None
    """A hub with limits."""


@contextmanager
def parts(folder: Path, options: argparse.Namespace) -> Iterator[Demo]:
    """Run what the options say until the end of the block. Raises LabError."""
    text = notebook(CHECK_SECONDS if options.check else None)
    if options.cluster or options.hub:
        from scripts.lib import demo_cluster

        wanted = {"notebook": options.cluster, "hub": options.hub, "brief": options.check}
        with demo_cluster.running(folder, text, **wanted) as (lab, other, hub):
            yield Demo(lab, other=other, hub=hub)
        return
    print("Starting JupyterLab", flush=True)
    with ExitStack() as stack:
        lab = stack.enter_context(here(folder, text, real=options.real))
        yield Demo(lab, None if options.real else stack.enter_context(sharing(folder / "s", brief=options.check)))


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


def show(demo: Demo) -> int:
    """Open the page, and wait until the user ends the demo or the server ends."""
    page = ""
    if demo.lab:
        page = demo.lab.page("lab/tree/demo.ipynb")
        print(f"\n{describe(demo.lab)}\n\nJupyterLab is here; Ctrl-C ends it:\n\n    {page}\n", flush=True)
    if demo.shared:
        print("Two notebooks that share one GPU; open both, side by side, and begin with the training:\n")
        print("".join(f"    {address}\n" for address in [*demo.shared.pages().values()][::-1]), flush=True)
    if demo.other:
        print(f"{demo.other.introduction}\n", flush=True)
    if demo.hub:
        page = page or demo.hub.address
        print(f"\n{demo.hub.introduction}", flush=True)
    opener = shutil.which("xdg-open")
    if opener and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        subprocess.Popen([opener, page], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if demo.hub:
        what, pid = "The hub", demo.hub.pid
    else:
        assert demo.lab
        what, pid = "JupyterLab", demo.lab.pid
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    print(f"{what} ended by itself. The end of its log:\n{ends_of_logs(demo)}", file=sys.stderr)
    return 1


def check(demo: Demo, pictures: bool) -> int:
    """Check all parts in a real browser; its scripts print what they see."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    status = 0
    if demo.lab:
        print(describe(demo.lab), flush=True)
        mode = demo.lab.json("jupyter-gpu/api/v1/status")["mode"]
        status = in_browser("demo_check.mjs", [demo.lab.page("lab/tree/demo.ipynb"), mode], pictures=pictures)
    if demo.shared and not status:
        print("\nTwo notebooks share one simulated GPU.", flush=True)
        pages = demo.shared.pages().values()
        status = in_browser("demo_sharing.mjs", pages, pictures=pictures) or alone(demo.shared)
    if demo.other and not status:
        print("\nA notebook uses GPUs of another node.", flush=True)
        with demo.other.watched() as seen:
            status = in_browser("demo_other_node.mjs", [demo.other.page], pictures=pictures)
        status = status or demo.other.judge(seen)
        if demo.hub:
            demo.other.end()  # the hub has the nodes to itself
    if demo.hub and not status:
        print("\nA hub with limits.", flush=True)
        status = in_browser("demo_hub.mjs", [], pictures=pictures, environment=demo.hub.environment())
    if status:
        print(ends_of_logs(demo), file=sys.stderr)
    return status


def in_browser(
    script: str, words: Iterable[str], *, pictures: bool, environment: Mapping[str, str] | None = None
) -> int:
    """Return the exit status of a browser script."""
    file = str(Path(__file__).with_name(script))
    command = ["node", file, *words, str(IMAGES), *(["pictures"] if pictures else [])]
    return subprocess.run(command, check=False, env=environment).returncode


def alone(shared: Sharing) -> int:
    """Return 0 if no two programs were ever on the GPU at once, according to the simulated GPU."""
    sums = shared.sums()
    said = (
        f"{sums.launches} kernels in {sums.busy / 1e6:.1f} s, {sums.overlaps} of them while the other's work was there"
    )
    print(f"The GPU itself says: {said}.")
    return int(sums.overlaps > 0 or sums.launches < 1000)


def ends_of_logs(demo: Demo) -> str:
    """Return the ends of the logs of all that runs."""
    labs = [
        demo.lab,
        *([demo.other.lab] if demo.other else ()),
        *((demo.shared.exploring, demo.shared.training) if demo.shared else ()),
    ]
    found = [f"{lab.url}:\n{lab.log.read_text(errors='replace')[-4000:]}" for lab in labs if lab]
    return "\n".join([*found, *([demo.hub.logs()] if demo.hub else [])])


if __name__ == "__main__":
    sys.exit(main())
