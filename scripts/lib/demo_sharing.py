"""The demo's second part: the notebooks of two servers share one simulated GPU. Used by `demo.py`.

The GPU takes real time and computes nothing (node_plugin/gate/standin). The programs on it are Numba's, unmodified, and
all that is between the two is the product's.
"""

import json
import subprocess
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu_node.gpus.simulated import MEMORY, uuid_of, write_load
from scripts.lib.lab import Lab, LabError, running
from tests.gate.standin.board import Board, Sums
from tests.gate.standin.clients import python_of

ROOT = Path(__file__).parents[2]
STANDIN = ROOT / "node_plugin" / "gate" / "standin" / "build.sh"
NOTEBOOKS = Path(__file__).with_name("demo_notebooks")
NAMES = ("exploring", "training")
KERNEL = "shared-gpu"
"""Name of the notebooks' kernel."""
TRAINING_SECONDS = 300
CHECK_SECONDS = 180
"""The longest the training runs; the check ends it earlier."""
_METER_SECONDS = 0.5
_SETTINGS = {"jupyter-gpu:plugin": {"chartWindow": 60}}


@dataclass(frozen=True)
class Sharing:
    """Two servers with half of the GPU each."""

    exploring: Lab
    training: Lab
    boards: Path
    """File in which the simulated GPU records its work."""

    def pages(self) -> Mapping[str, str]:
        """Return the addresses of the notebooks, by name."""
        return {name: getattr(self, name).page(f"lab/tree/{name}.ipynb") for name in NAMES}

    def sums(self) -> Sums:
        """Return the work done on the GPU so far, and how often two programs were on it at once."""
        return Board(self.boards, uuid_of(0)).sums()


@contextmanager
def sharing(folder: Path, *, brief: bool) -> Iterator[Sharing]:
    """Run both servers below `folder`, whose path must be short for sockets. `brief`: the training ends earlier.

    Raises LabError if something does not start.
    """
    kernel = _Kernel(folder)
    with ExitStack() as stack:
        exploring, training = (stack.enter_context(_lab(folder, name, kernel, brief=brief)) for name in NAMES)
        stack.enter_context(_meter(kernel.boards, folder / "gpu" / "simulated"))
        yield Sharing(exploring, training, kernel.boards)


@contextmanager
def _lab(folder: Path, name: str, kernel: "_Kernel", *, brief: bool) -> Iterator[Lab]:
    own = folder / name
    kernel.write(own / "data" / "kernels" / KERNEL, owner=name)
    for plugin, settings in _SETTINGS.items():
        file = own / "config" / "lab" / "user-settings" / f"{plugin.replace(':', '/')}.jupyterlab-settings"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    (own / "work").mkdir()
    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    text = text.replace(f"seconds = {TRAINING_SECONDS}", f"seconds = {CHECK_SECONDS}") if brief else text
    (own / "work" / f"{name}.ipynb").write_text(text)
    arguments = ["--GpuExtension.simulated_gpus=1", f"--GpuExtension.state_dir={folder / 'gpu'}"]
    arguments += ["--GpuExtension.sample_interval=0.25", "--LabApp.expose_app_in_browser=True"]
    with running(own, *arguments) as lab:
        yield lab


class _Kernel:
    """The notebooks' kernel: the Python with Numba, the packages of this one, and the simulated GPU's driver."""

    def __init__(self, folder: Path) -> None:
        self.boards = folder / "boards"
        self._driver = folder / "driver"
        self._site = folder / "site"
        done = subprocess.run([STANDIN, self._driver], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"The driver of the simulated GPU could not be built.\n{done.stdout}{done.stderr}")
        self._python = python_of("numba")
        self._site.mkdir()  # with the .pth files of this Python's packages, which PYTHONPATH alone does not read
        packages = sysconfig.get_path("purelib")
        (self._site / "sitecustomize.py").write_text(f"import site\n\nsite.addsitedir({packages!r})\n")

    def write(self, folder: Path, owner: str) -> None:
        """Write its kernel spec; `owner` names whose work its programs do on the GPU."""
        environment = {
            "LD_LIBRARY_PATH": self._driver,
            "JUPYTER_GPU_STANDIN": self.boards,
            "JUPYTER_GPU_STANDIN_GPUS": f"{uuid_of(0)}:{MEMORY >> 20}",
            "JUPYTER_GPU_STANDIN_OWNER": owner,
            "PYTHONPATH": self._site,
        }
        spec = {
            "argv": [str(self._python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "Python 3 on a simulated GPU",
            "language": "python",
            "env": {name: str(value) for name, value in environment.items()},
        }
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(json.dumps(spec))


@contextmanager
def _meter(boards: Path, directory: Path) -> Iterator[None]:
    """Report load and memory of the GPU to the panel, as NVML does for a real one."""
    end = threading.Event()
    thread = threading.Thread(target=_measure, args=(boards, directory, end), name="meter", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _measure(boards: Path, directory: Path, end: threading.Event) -> None:
    uuid = uuid_of(0)
    while not (boards / f"{uuid}.board").exists():  # the first program makes it
        if end.wait(_METER_SECONDS):
            return
    board = Board(boards, uuid)
    before = board.sums().busy
    while not end.wait(_METER_SECONDS):
        now = board.sums().busy
        busy = (now - before) / (_METER_SECONDS * 1e6)
        write_load(directory, uuid, min(1.0, max(0.0, busy)), sum(board.live().values()))
        before = now
