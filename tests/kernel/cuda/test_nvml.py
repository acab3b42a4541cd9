"""NVML follows the GPUs of a process, where that harms nothing; with a library that behaves as driver 580's does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu.common.attached import AttachedGpu, Hint
from jupyter_gpu.kernel.cuda import nvml
from jupyter_gpu.kernel.cuda.guard import CudaGuard
from jupyter_gpu.kernel.cuda.idle import PERIOD, IdleWatch
from jupyter_gpu.kernel.cuda.nvml import STARTED, Nvml, threads_elsewhere
from tests.gate.building import command
from tests.kernel.kernels import Kernel, StartKernel
from tests.kernel.servers import await_

SOURCE = Path(__file__).with_name("standin_nvml.c")
UUIDS = ("GPU-0000", "GPU-0001")


class Machine:
    """Files that stand for GPUs, and a library that stands for NVML."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command("gcc", "-shared", "-fPIC", "-pthread", SOURCE, "-o", folder / "libnvidia-ml.so.1",
                "-Wl,-soname,libnvidia-ml.so.1")  # fmt: skip
        self.env = {"STANDIN_NVML": str(folder / "list"), "LD_LIBRARY_PATH": str(folder)}
        self.have(1)

    def path(self, index: int) -> str:
        """Return the file that stands for a GPU."""
        return str(self.folder / f"gpu{index}")

    def have(self, count: int) -> None:
        """Let so many GPUs be opened from now on."""
        for index in range(count):
            Path(self.path(index)).touch()
        lines = (f"{UUIDS[index]} {self.path(index)}\n" for index in range(count))
        (self.folder / "list").write_text("".join(lines))

    def run(self, code: str) -> str:
        """Return what a program prints."""
        env = {**os.environ, **self.env, "FOLDER": str(self.folder)}
        done = subprocess.run([sys.executable, "-c", BEGIN + code], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


BEGIN = """
import ctypes, os, threading, time
from jupyter_gpu.kernel.cuda.nvml import Nvml
folder = os.environ["FOLDER"]
def opened():
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in paths if os.path.islink(path)]
    return sorted(link.removeprefix(folder + "/") for link in links if link.startswith(folder + "/gpu"))
def have(count):
    for index in range(count): open(f"{folder}/gpu{index}", "w").close()
    open(folder + "/list", "w").writelines(f"GPU-000{index} {folder}/gpu{index}\\n" for index in range(count))
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nvml_is_initialised_again_as_often_as_before(machine: Machine) -> None:
    """It closes the GPUs meanwhile, and counts those of its new start; the program's own shutdowns stay balanced."""
    said = machine.run("""
import pynvml
mine = Nvml()
for _ in range(3): pynvml.nvmlInit()
print(opened(), pynvml.nvmlDeviceGetCount())
print([mine.restart(start=False), mine.restart(start=False)], opened())
have(2)
print([mine.restart(start=True)], opened(), pynvml.nvmlDeviceGetCount())
print([mine.restart(start=True)], opened())
for _ in range(3): pynvml.nvmlShutdown()
print(opened())
try: pynvml.nvmlShutdown()
except pynvml.NVMLError as error: print(error)
""")
    assert said.splitlines() == [
        "['gpu0'] 1",
        "['', ''] []",
        "[''] ['gpu0', 'gpu1'] 2",
        "[''] ['gpu0', 'gpu1']",
        "[]",
        "Uninitialized",
    ]


def test_initialisation_of_another_program_s_meanwhile_counts(machine: Machine) -> None:
    """PyTorch initialises it for each question, also while it is shut down."""
    said = machine.run("""
library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlInit_v2(); library.nvmlInit_v2()
mine = Nvml()
mine.restart(start=False)
library.nvmlInit_v2()
mine.restart(start=True)
print([library.nvmlShutdown() for _ in range(4)])
""")
    assert said == "[0, 0, 0, 1]"


def test_process_without_nvml_loads_none(machine: Machine) -> None:
    """There is nothing to do."""
    assert (
        machine.run("""
mine = Nvml()
print([mine.restart(start=True)], mine.loaded, "libnvidia-ml" in open("/proc/self/maps").read())
""")
        == "[''] False False"
    )


def test_handle_that_is_no_object_of_pynvml_is_valid_again(machine: Machine) -> None:
    """It is valid as soon as somebody has asked for the device."""
    assert (
        machine.run("""
library, handle, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.create_string_buffer(96)
library.nvmlInit_v2(); library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
Nvml().restart(start=True)
print(library.nvmlDeviceGetUUID(handle, text, 96), text.value.decode())
""")
        == "0 GPU-0000"
    )


def test_kept_handle_prevents_a_restart(machine: Machine) -> None:
    """It might be another GPU's afterwards. One that is no longer used does not, not even in a cycle."""
    assert machine.run("""
import pynvml
mine = Nvml()
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
print(mine.restart(start=False), opened())
cycle = [handle]; cycle.append(cycle); del handle, cycle
print([mine.restart(start=False)], opened())
""").splitlines() == ["the program keeps handles of devices ['gpu0']", "[''] []"]


@pytest.mark.parametrize(("pause", "expected"), [("stop.wait(0.0005)", True), ("stop.is_set()", False)])
def test_thread_inside_nvml_is_never_lost(machine: Machine, pause: str, expected: bool) -> None:
    """A thread polls, with pauses or without: NVML is shut down between its calls or not at all, and all return."""
    said = machine.run(f"""
import pynvml
stop, rounds = threading.Event(), 0
def poll():
    global rounds
    while not {pause}:
        try: pynvml.nvmlDeviceGetCount(); rounds += 1
        except pynvml.NVMLError: pass
pynvml.nvmlInit()
threads = [threading.Thread(target=poll, daemon=True) for _ in range(3)]
[thread.start() for thread in threads]
mine, answers = Nvml(), set()
for _ in range(150):
    answers.add(mine.restart(start=True)); time.sleep(0.001)
before = rounds; time.sleep(0.3); after = rounds
stop.set(); [thread.join(5) for thread in threads]
print(sum(thread.is_alive() for thread in threads), after > before)
print("a thread runs code of pynvml" in answers, "" in answers)
""").split()
    assert said[:3] == ["0", "True", "True"]
    if expected:
        assert said[3] == "True"


def frame(module: str) -> Any:
    return SimpleNamespace(f_globals={"__name__": module})


def test_threads_are_judged_by_their_innermost_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting in the standard library or in the kernel's own code is no use of NVML; anything else may be."""
    assert threads_elsewhere({1: frame("threading"), 2: frame("zmq.backend"), 3: frame("ipykernel.heartbeat")}) == ""
    assert threads_elsewhere({1: frame("threading"), 2: frame("wandb.gpu")}) == "a thread runs code of wandb.gpu"
    assert threads_elsewhere({1: frame("zmqueue")}) == "a thread runs code of zmqueue"
    assert threads_elsewhere({1: SimpleNamespace(f_globals={})}) == "a thread runs code of "
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert threads_elsewhere({}) == "threads of this Python run at the same time"


def test_started_cuda_keeps_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process keeps its GPUs anyway, and its libraries may use NVML."""
    monkeypatch.setattr(nvml, "threads_elsewhere", lambda: "a thread runs code of wandb.gpu")
    monkeypatch.setattr(nvml, "cuda_nodes", lambda *_: frozenset())
    assert Nvml(lambda: object()).restart(start=True) == "a thread runs code of wandb.gpu"
    monkeypatch.setattr(nvml, "cuda_nodes", lambda *_: frozenset({"/dev/nvidia0"}))
    assert Nvml(lambda: object()).restart(start=True) == STARTED


# --- the guard --------------------------------------------------------------------------------------------------------


class Calls(Nvml):
    """NVML that notes what it is asked for, and refuses as long as `why` is set."""

    def __init__(self) -> None:
        super().__init__(lambda: None)
        self.calls: list[bool] = []
        self.why = ""

    @property
    def loaded(self) -> bool:
        return True

    def restart(self, *, start: bool) -> str:
        self.calls.append(start)
        return self.why


def hint(version: int, *indices: int, enforced: bool = False, simulated: bool = False) -> Hint:
    gpus = tuple(AttachedGpu(UUIDS[index], index, f"/dev/nvidia{index}") for index in indices)
    return Hint("one", version, simulated, gpus, enforced)


@pytest.mark.parametrize(
    ("before", "after", "enforced", "calls"),
    [
        ((), (0,), False, [True]),
        ((0,), (0, 1), False, [True]),
        ((0,), (0,), False, []),
        ((0, 1), (0,), False, [False]),
        ((0,), (), False, [False]),
        ((0,), (1,), False, [False]),
        ((0, 1), (0,), True, [True]),
        ((0,), (), True, [True]),
    ],
)
def test_nvml_follows_changes(
    before: tuple[int, ...], after: tuple[int, ...], enforced: bool, calls: list[bool]
) -> None:
    """It stays shut down after a GPU was given back that nothing keeps it from opening again."""
    mine = Calls()
    guard = CudaGuard({}, None, nvml=mine)
    guard.see(hint(1, *before, enforced=enforced))
    assert mine.calls == []
    guard.see(hint(2, *after, enforced=enforced))
    guard.new_notice()
    assert mine.calls == calls


def test_refused_restart_is_tried_again() -> None:
    """Before the next cell, until it is done or CUDA has started; and never for simulated GPUs."""
    mine = Calls()
    guard = CudaGuard({}, None, nvml=mine)
    guard.see(hint(1, 0))
    mine.why = "a thread runs"
    guard.see(hint(2))
    guard.new_notice()
    assert guard.nvml_refusal == "a thread runs"
    mine.why = STARTED
    guard.new_notice()
    assert guard.nvml_refusal == "", "it is CUDA that has the GPU open"
    guard.new_notice()
    assert mine.calls == [False] * 3
    guard.see(hint(3, 0))
    guard.starts(lambda: 7)()
    guard.see(hint(4, 0, 1))
    assert mine.calls == [False] * 3 + [True], "CUDA has started by a hook"
    other = CudaGuard({}, None, nvml=mine)
    other.see(hint(1, 0, simulated=True))
    other.see(hint(2, simulated=True))
    assert len(mine.calls) == 4


def test_idle_kernel_looks_while_nvml_may_keep_gpus() -> None:
    """Once in a period, and not before a cell has used it; until nothing is attached or CUDA has started."""
    mine, due = Calls(), []
    guard = CudaGuard({}, None, nvml=mine)

    def later(seconds: float, function: Callable[[], None]) -> None:
        assert seconds == PERIOD
        due.append(function)

    loop = SimpleNamespace(call_later=later)
    shell = SimpleNamespace(kernel=None)
    idle = IdleWatch(guard, shell)
    shell.kernel = SimpleNamespace(io_loop=SimpleNamespace(asyncio_loop=loop))
    idle.after_cell()
    assert due == []
    guard.see(hint(1, 0))
    idle.after_cell()
    idle.after_cell()
    assert len(due) == 1
    due.pop()()
    assert len(due) == 1
    guard.see(hint(2))
    due.pop()()
    assert due == []
    guard.see(hint(3, 0))
    guard.starts(lambda: 7)()
    idle.after_cell()
    assert due == []


def test_console_is_not_watched() -> None:
    """It has no event loop between its inputs."""
    mine = Calls()
    guard = CudaGuard({}, None, nvml=mine)
    guard.see(hint(1, 0))
    IdleWatch(guard, object()).after_cell()
    guard.see(hint(2))
    assert mine.calls == [False]


# --- real kernels -----------------------------------------------------------------------------------------------------


@pytest.fixture
def kernel(start_kernel: StartKernel, machine: Machine, provisioned: None) -> Kernel:
    """Start a kernel in front of the library, with one GPU attached."""
    attach(machine, 1, 0)
    started = start_kernel(JUPYTER_GPU_ATTACHED=str(machine.folder / "attached"), **machine.env)
    assert started.run("import os, torch; print(torch.cuda.is_available(), torch.cuda.device_count())") == "True 1"
    return started


def attach(machine: Machine, version: int, *indices: int) -> None:
    """Do as the server does: change what can be opened, then tell kernels."""
    machine.have(len(indices))
    gpus = tuple(AttachedGpu(UUIDS[index], index, machine.path(index)) for index in indices)
    (machine.folder / "new").write_text(Hint("one", version, False, gpus, True).to_text())
    (machine.folder / "new").rename(machine.folder / "attached")


def test_pytorch_counts_a_gpu_that_came_later(kernel: Kernel, machine: Machine) -> None:
    """Its NVML would otherwise count those of its start."""
    attach(machine, 2, 0, 1)
    assert kernel.run("print(torch.cuda.device_count())") == "2"
    assert kernel.errors == ""
    attach(machine, 3)
    assert kernel.run("print(torch.cuda.is_available(), torch.cuda.device_count())") == "False 0"
    attach(machine, 4, 0)
    assert kernel.run("print(torch.cuda.is_available())") == "True"


def test_idle_kernel_closes_a_gpu_that_is_taken_back(kernel: Kernel, machine: Machine) -> None:
    """The slider gave it back, and no cell is run."""
    pid = int(kernel.run("print(os.getpid())"))

    def opened() -> list[str]:
        links = []
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                links.append(str(entry.readlink()))
            except OSError:
                continue
        return [link for link in links if link.startswith(machine.path(0))]

    assert len(opened()) == 1
    attach(machine, 2)
    await_(lambda: not opened(), 20)
    assert kernel.run("print(torch.cuda.device_count())") == "0"
