"""A program that asks NVML while its GPU is parked gets an answer at once, from the library in front of NVML. NVML's
stand-in keeps each thread that enters it then."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.processes.device_scan import Target, scan
from tests.devices import first_minor

from .building import GATE, build_nvml, build_standin_nvml
from .place import GPU, Place, Program
from .standin.clients import ROOT
from .test_park import CALLS, QUICK

LISTED = ["".join(one) for one in re.findall(r"F\((\w+), (\w*)\)", (GATE / "nvml" / "functions.def").read_text())]
NVML = f"""{CALLS}
nvml = ctypes.CDLL("libnvidia-ml.so.1")
text, number = ctypes.create_string_buffer(96), ctypes.c_uint(7)

def count():
    return nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) or f"has {{number.value}}"

def opened():
    files = (os.path.realpath(f"/proc/self/fd/{{one}}") for one in os.listdir("/proc/self/fd"))
    return sum(one == os.environ["NODE"] for one in files)
"""
PARKED, BACK = "PARKED CHECKPOINT 0", "RUNNING UNLOCK 0"
UNINITIALIZED, TIMEOUT, NOT_FOUND = 1, 10, 13


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the library in front of NVML's stand-in."""
    folder = tmp_path_factory.mktemp("nvml")
    return build_nvml(folder / "front", build_standin_nvml(folder / "real"))


@pytest.fixture
def env(place: Place, front: Path, tmp_path: Path) -> dict[str, str]:
    """Return the environment of programs that are parked in no time, with NVML and its GPU."""
    node = tmp_path / "node"
    node.touch()
    (tmp_path / "list").write_text(f"{GPU} {node}\n")
    found = place.env() | QUICK | {"PYTHONPATH": str(ROOT), "JUPYTER_GPU_GATE": "", "NODE": str(node)}
    return found | {"STANDIN_NVML": str(tmp_path / "list"), "LD_LIBRARY_PATH": f"{front}:{place.built.gate}"}


def _said(env: dict[str, str], text: str) -> list[str]:
    with Program([sys.executable, "-c", NVML + text], env) as program:
        return program.lines()


def test_calls_are_answered_while_parked(env: dict[str, str]) -> None:
    """Before and afterwards NVML answers; meanwhile it has nothing open, and another thread is not kept either."""
    text = """
say(nvml.nvmlInit_v2(), count(), opened())
say(park(), opened())
answers = []
other = threading.Thread(target=lambda: answers.append(count()))
other.start()
other.join()
say(count(), nvml.nvmlDeviceGetUUID(None, text, 96), answers)
nvml.nvmlErrorString.restype = ctypes.c_char_p
say(nvml.nvmlErrorString(10), nvml.nvmlErrorString(1), nvml.nvmlErrorString(2))
say(back(), count(), opened())
"""
    assert _said(env, text) == [
        "0 has 1 1",
        f"{PARKED} 0",
        "10 10 [10]",
        "b'Timeout' b'Uninitialized' b'Unknown Error'",
        f"{BACK} has 1 1",
    ]


@pytest.mark.root
def test_scan_finds_the_gpu_closed(env: dict[str, str], tmp_path: Path) -> None:
    """A real device node that the driver and NVML have open, as each of them has the GPU's."""
    node, device = tmp_path / "device", Device(4, first_minor())
    os.mknod(node, 0o600 | 0o020000, os.makedev(device.major, device.minor))
    (tmp_path / "list").write_text(f"{GPU} {node}\n")
    env |= {"NODE": str(node), "JUPYTER_GPU_STANDIN_NODES": str(node)}
    text = "say(nvml.nvmlInit_v2())\ninput()\nsay(park(), count())\ninput()\nsay(back(), count())\ninput()"
    with Program([sys.executable, "-c", NVML + text], env) as program:
        for line, holds in (("0", True), (f"{PARKED} {TIMEOUT}", False), (f"{BACK} has 1", True)):
            assert program.line() == line
            found = scan({GPU: Target(device=device)})
            assert (program.process.pid in {one.pid for one in found.holders.get(GPU, ())}) == holds
            program.tell("")
        assert program.lines() == []


def test_starts_and_ends_are_made_up_for(env: dict[str, str]) -> None:
    """NVML closes its GPUs at the last end, also if that came while it could not be asked."""
    text = """
say([nvml.nvmlInit_v2(), nvml.nvmlInit(), nvml.nvmlInitWithFlags(0), nvml.nvmlShutdown()])
say(park())
say([nvml.nvmlShutdown() for _ in range(3)], count(), nvml.nvmlInit_v2(), count(), nvml.nvmlShutdown())
say(back(), opened(), count(), nvml.nvmlShutdown(), nvml.nvmlInit_v2(), count())
say(park())
say(nvml.nvmlInit(), nvml.nvmlInit_v2(), nvml.nvmlShutdown())
say(back(), [nvml.nvmlShutdown() for _ in range(3)], opened())
"""
    assert _said(env, text) == [
        "[0, 0, 0, 0]",
        PARKED,
        "[0, 0, 1] 1 0 10 0",
        f"{BACK} 0 1 1 0 has 1",
        PARKED,
        "0 0 0",
        f"{BACK} [0, 0, 1] 0",
    ]


@pytest.mark.parametrize("first", ["", "nvml.nvmlShutdown()"])
def test_first_use_while_parked(env: dict[str, str], first: str) -> None:
    """NVML cannot be started then; afterwards it can. The same if it was asked for something before."""
    text = f"{first}\nsay(park())\nsay(nvml.nvmlInit(), nvml.nvmlInit_v2(), count())"
    text = f"{text}\nsay(back(), nvml.nvmlInit(), count())"
    assert _said(env, text) == [PARKED, f"{TIMEOUT} {TIMEOUT} {UNINITIALIZED}", f"{BACK} 0 has 1"]


@pytest.mark.parametrize("late", [False, True])
def test_nvml_and_the_driver_come_in_any_order(env: dict[str, str], late: bool) -> None:
    """A program may start NVML before it loads the driver, or load NVML only while it is parked."""
    loads = 'nvml = ctypes.CDLL("libnvidia-ml.so.1")\nstarted = nvml.nvmlInit_v2()\n'
    first, then = ("", loads) if late else (loads, "")
    text = NVML.replace(loads.partition("\n")[0], "")
    text = f"import ctypes\n{first}{text}parked = park()\n{then}say(parked, started, count())"
    with Program([sys.executable, "-c", f"{text}\nsay(back(), nvml.nvmlInit_v2(), count())"], env) as program:
        lines = program.lines()
    answers = f"{TIMEOUT} {UNINITIALIZED}" if late else f"0 {TIMEOUT}"
    assert lines == [f"{PARKED} {answers}", f"{BACK} 0 has 1"]


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        ("lock-slow", ["RUNNING LOCK 600", "has 1"]),
        ("checkpoint-2", ["BROKEN CHECKPOINT 2", "has 1"]),
        ("restore-304", ["LOST RESTORE 304", "999"]),
        ("restore-801:1", ["PARKED RESTORE 801", "10"]),
    ],
)
def test_park_that_fails(env: dict[str, str], fault: str, answers: list[str]) -> None:
    """NVML is asked again as soon as the program goes on with its GPU, and never again if its data are lost."""
    text = f"nvml.nvmlInit_v2()\nfault({fault!r})\nfirst, second = park(ms=100), back()\nsay(second)\nsay(count())"
    assert _said(env, text) == answers


def test_child_of_a_parked_process_has_no_nvml(env: dict[str, str]) -> None:
    """It has none of the GPU's files, and NVML would keep it."""
    text = """
nvml.nvmlInit_v2()
say(park())
if not os.fork():
    say(nvml.nvmlInit_v2(), count(), nvml.nvmlShutdown())
    os._exit(0)
os.wait()
say(back(), count())
"""
    parked, child, end = _said(env, text)
    assert (parked, end) == (PARKED, f"{BACK} has 1")
    assert child.split()[:2] == ["0", str(UNINITIALIZED)]


def test_thread_that_starts_nvml_is_waited_for(env: dict[str, str]) -> None:
    """It opens all GPUs, so nothing is parked meanwhile: the park waits, or is refused after a second."""
    text = """
def start(ms):
    ctypes.CDLL(None).setenv(b"STANDIN_NVML_SLOW", str(ms).encode(), 1)
    thread = threading.Thread(target=nvml.nvmlInit_v2)
    thread.start()
    time.sleep(0.1)
    return thread
thread = start(500)
say(park(), opened())
thread.join()
say(back(), count())
thread = start(3000)
say(park(), count())
thread.join()
say(park(), count(), back(), count())
"""
    assert _said(env, text) == [
        f"{PARKED} 0",
        f"{BACK} has 1",
        "RUNNING BLOCK 600 has 1",
        f"{PARKED} {TIMEOUT} {BACK} has 1",
    ]


def test_threads_that_poll_are_never_kept(env: dict[str, str]) -> None:
    """Four threads ask without pause, start NVML and shut it down, through a hundred parks. At the end all balances."""
    text = """
nvml.nvmlInit_v2()
stop, answers, rounds = threading.Event(), set(), [0] * 4
def poll(index):
    while not stop.is_set():
        started = nvml.nvmlInit_v2()
        answers.add(started)
        answers.add(count())
        if not started: answers.add(nvml.nvmlShutdown())
        rounds[index] += 1
threads = [threading.Thread(target=poll, args=[index]) for index in range(4)]
for one in threads: one.start()
parks = moved = 0
for _ in range(100):
    parked = park() == "PARKED CHECKPOINT 0"
    before = sum(rounds)
    time.sleep(0.02)
    parks += parked
    moved += parked and sum(rounds) > before
    back()
stop.set()
for one in threads: one.join()
say(parks > 50, moved > parks / 2, sorted(map(str, answers)))
say(opened(), nvml.nvmlShutdown(), nvml.nvmlShutdown(), opened())
"""
    assert _said(env, text) == ["True True ['0', '10', 'has 1']", "1 0 1 0"]


def test_functions_that_nvml_lacks_or_that_are_not_listed(env: dict[str, str], front: Path) -> None:
    """An older NVML answers that it has none; what is newer than the list is NVML's own."""
    assert "nvmlDeviceGetName" in LISTED
    assert "setenv" not in LISTED
    table = subprocess.check_output(["nm", "-D", "--defined-only", front / "libnvidia-ml.so.1"], text=True).split()
    assert {name for name in table if name.startswith("nvml")} == set(LISTED)
    assert {name for name in table if name.startswith("jupyter")} == {"jupyter_gpu_nvml_follow"}
    assert _said(env, "say(nvml.nvmlDeviceGetName(None, text, 96), nvml.standin_unlisted())") == [f"{NOT_FOUND} 42"]


def test_list_is_in_order_and_has_what_we_call() -> None:
    """A call of ours that is not in it would wait while parked."""
    assert sorted(set(LISTED)) == LISTED
    sources = [*(ROOT / "jupyter_gpu").rglob("*.py"), *(ROOT / "node_plugin" / "jupyter_gpu_node").rglob("*.py")]
    called = {name for path in sources for name in re.findall(r"\bnvml[A-Z]\w+(?=\()", path.read_text())}
    assert called
    assert called - set(LISTED) <= {"nvmlExceptionClass"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="one instruction on x86-64 only")
def test_call_is_one_jump(front: Path) -> None:
    """From the entry NVML itself is called, as the arguments are not touched."""
    words = ["objdump", "-d", "--no-show-raw-insn", "--disassemble=nvmlDeviceGetName"]
    code = subprocess.check_output([*words, front / "libnvidia-ml.so.1"], text=True)
    instructions = [line.split("\t")[-1] for line in code.splitlines() if re.match(r"\s+[0-9a-f]+:", line)]
    assert [one.split()[0] for one in instructions if not one.startswith("endbr")] == ["jmp"]


def test_program_without_the_gate_has_nvml_itself(env: dict[str, str], front: Path) -> None:
    """With no gate in the process nothing is ever shut."""
    text = "import ctypes\nnvml = ctypes.CDLL('libnvidia-ml.so.1')\n"
    text += "print(nvml.nvmlInit_v2(), nvml.nvmlShutdown(), nvml.nvmlShutdown())"
    with Program([sys.executable, "-c", text], env | {"LD_LIBRARY_PATH": str(front)}) as program:
        assert program.lines() == ["0 0 1"]
