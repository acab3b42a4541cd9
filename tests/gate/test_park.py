"""The gate parks its process on the stand-in driver, and brings it back; the driver ends it if a wrong call enters."""

import re
import signal
import sys
import time
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Need, Revoke
from tests.shares.world import until

from .building import GATE, Built, build_entries
from .place import GPU, MIB, Place, Program
from .standin.board import Board
from .standin.clients import BINDINGS, ROOT, python_of
from .standin.test_parked_calls import MEASURED
from .stub import Connection

QUICK = {f"JUPYTER_GPU_STANDIN_PARK_{name}": "0" for name in ("BASE", "IN", "OUT")}
FAULT = "JUPYTER_GPU_STANDIN_PARK_FAULT"
HEADER = (GATE / "parking" / "park.h").read_text()
STATES = re.findall(r"PARK_(\w+),?[ \n]", HEADER.partition("enum park_state {")[2].partition("};")[0])
STEPS = re.findall(r"PARK_(\w+),?[ \n]", HEADER.partition("enum park_step {")[2].partition("};")[0])

PARKS = f"""
import ctypes, os, sys, threading, time
STATES, STEPS = {STATES!r}, {STEPS!r}
gate = ctypes.CDLL("libcuda.so.1")

def fault(name):  # the driver reads the variable at each step
    libc = ctypes.CDLL(None)
    libc.setenv(b"{FAULT}", name.encode(), 1)

def asked(name, ms=2000, wait=60000):
    answer = (ctypes.c_int32 * (4 + 2 * len(STEPS)))()
    late = getattr(gate, "jupyter_gpu_" + name)(ms, wait, answer)
    return " ".join([STATES[answer[0]], STEPS[answer[1]], str(answer[2]), *["late"] * late])

def park(**more):
    return asked("park", **more)

def back(ms=0, **more):
    return asked("return", ms=ms, **more)

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")  # at once: several threads say something
    sys.stdout.flush()
"""
CALLS = f"""{PARKS}
from tests.gate.standin.driver import *
context = start()
memory = new("cuMemAlloc_v2", 8 << 20)
call("cuMemcpyHtoD_v2", memory, b"there", 5)

def read():
    there = ctypes.create_string_buffer(5)
    return raw("cuMemcpyDtoH_v2", there, memory, 5) or there.value.decode()
"""


@pytest.fixture(scope="module")
def parks(built: Built) -> list[str]:
    """Return the command of a program with the gate in it."""
    return [str(build_entries(built.program("parks"), built.driver, source="parks.c"))]


@pytest.fixture
def env(place: Place) -> dict[str, str]:
    """Return the environment of programs that are parked in no time, without a server of shares."""
    return place.env() | QUICK | {"PYTHONPATH": str(ROOT), "JUPYTER_GPU_GATE": ""}


@pytest.fixture
def inside(env: dict[str, str]) -> dict[str, str]:
    """Return the environment of programs with the gate in them."""
    return {name: value for name, value in env.items() if name != "LD_LIBRARY_PATH"}


def _program(env: dict[str, str], text: str, python: str | Path = sys.executable) -> Program:
    return Program([str(python), "-c", text], env)


def _said(env: dict[str, str], text: str, python: str | Path = sys.executable) -> list[str]:
    with _program(env, text, python) as program:
        return program.lines()


def test_park_and_return(place: Place, env: dict[str, str]) -> None:
    """The GPU is closed and empty meanwhile, the memory is as before; to ask twice changes nothing."""
    with _program(env, f"{CALLS}\nsay(park(), park())\ninput()\nsay(back(), back(), read())") as program:
        assert program.line() == "PARKED CHECKPOINT 0 PARKED CHECKPOINT 0"
        board = Board(place.folder / "boards", GPU)
        assert board.live() == {}
        program.tell("")
        assert program.line() == "RUNNING UNLOCK 0 RUNNING UNLOCK 0 there"


NUMBA = f"""{PARKS}
import numpy
from numba import cuda
rng = numpy.random.default_rng(1)
there = [cuda.to_device(rng.random(1000)) for _ in range(20)]
before = [one.copy_to_host().tobytes() for one in there]
stream, event = cuda.stream(), cuda.event()
event.record(stream)
say(park(), event.query(), cuda.current_context().device.id)
del there[10:]
late = []
threading.Thread(target=lambda: late.append(cuda.device_array(100))).start()
time.sleep(0.2)
say(len(late), back())
event.synchronize()
say([one.copy_to_host().tobytes() for one in there] == before[:10])
"""
OWN = f"""{BINDINGS}{PARKS}
of(driver.cuCtxSetCurrent(of(driver.cuDevicePrimaryCtxRetain(0))))
memory = of(driver.cuMemAlloc(1 << 20))
of(driver.cuMemcpyHtoD(memory, b"there and back", 14))
say(park())
of(driver.cuStreamSynchronize(0))
say(of(driver.cuDriverGetVersion()) > 0, back())
there = bytearray(14)
of(driver.cuMemcpyDtoH(there, memory, 14))
say(there.decode())
"""


@pytest.mark.timeout(900)
def test_numba_is_parked(env: dict[str, str]) -> None:
    """Its arrays come back to the last bit; what asks or frees goes on meanwhile, and what works waits."""
    assert _said(env, NUMBA, python_of("numba")) == [
        "PARKED CHECKPOINT 0 True 0",
        "0 RUNNING UNLOCK 0",
        "True",
    ]


@pytest.mark.timeout(900)
def test_cuda_bindings_are_parked(env: dict[str, str]) -> None:
    """They find functions by cuGetProcAddress."""
    said = _said(env, OWN, python_of("bindings13"))
    assert said == ["PARKED CHECKPOINT 0", "True RUNNING UNLOCK 0", "there and back"]


@pytest.mark.parametrize("threads", ["4", "64"])
def test_threads_in_all_kinds_of_calls_are_parked_again_and_again(
    parks: list[str], inside: dict[str, str], threads: str
) -> None:
    """None enters the parked driver or moves meanwhile; their data are right, and all memory is given back."""
    with Program([*parks, "threads", threads, "100"], inside) as program:
        (line,) = program.lines()
    found = dict(zip(line.split()[::2], map(int, line.split()[1::2]), strict=True))
    assert found["parked"] + found["busy"] == 100
    assert found["parked"] > 50
    assert found["moved"] == found["wrong"] == found["lost"] == 0


def test_thread_that_does_not_leave_the_driver_is_waited_for(parks: list[str], inside: dict[str, str]) -> None:
    """After a second the park is undone, and the program goes on; later it can be parked."""
    with Program([*parks, "inside"], inside) as program:
        assert [_words(line) for line in program.lines()] == [
            "RUNNING DRAIN 600",
            "PARKED CHECKPOINT 0",
            "RUNNING UNLOCK 0",
        ]


def test_thread_that_waits_at_an_entry_is_not_waited_for(parks: list[str], inside: dict[str, str]) -> None:
    """It may be on its way to such a call, and is in none."""
    with Program([*parks, "waiting"], inside) as program:
        parked, back = "PARKED CHECKPOINT 0", "RUNNING UNLOCK 0"
        assert [_words(line) for line in program.lines()] == [parked, back, parked]


def test_every_call_that_ends_a_parked_process_is_marked() -> None:
    """In all its forms, around the driver's function alone."""
    listed = re.findall(r"F\((\w+), (\w*), \d+, \w+\)", (GATE / "driver" / "functions.def").read_text())
    ends = {name for name, (*_, parked) in MEASURED.items() if parked == "ends"}
    sources = "".join(path.read_text() for path in sorted(GATE.glob("*/*.c")))
    marked = set(re.findall(r"MARKED\(REAL\((\w+)\)", sources)) | set(
        re.findall(r" ALLOCATE\((\w+), ", (GATE / "memory" / "pools.c").read_text())
    )
    assert "MARKED(REAL(symbol)" in (GATE / "memory" / "pools.c").read_text()
    assert marked - {"symbol"} == {name + end for name, end in listed if name in ends}


def _words(line: str) -> str:
    state, step, code = line.split()
    return f"{STATES[int(state)]} {STEPS[int(step)]} {code}"


def test_thread_that_ends_meanwhile_is_not_held(place: Place, parks: list[str], inside: dict[str, str]) -> None:
    """The end of a thread with work of its own needs the gate's lock, and no GPU."""
    with (
        place.stub() as stub,
        Program([*parks, "thread"], inside | {"JUPYTER_GPU_GATE": str(place.sockets)}) as program,
    ):
        stub.keep_granting(60_000_000)
        parked, ended, back = program.lines()
    assert [_words(parked), ended, _words(back)] == ["PARKED CHECKPOINT 0", "ended", "RUNNING UNLOCK 0"]


def test_exit_does_not_wait(parks: list[str], inside: dict[str, str]) -> None:
    """Calls of its handlers, and those that wait, get the error of a driver that has ended."""
    with Program([*parks, "exit"], inside) as program:
        parked, codes = program.lines()
    assert _words(parked) == "PARKED CHECKPOINT 0"
    assert codes == "4 4 4 4"


def test_ends_at_any_moment(parks: list[str], inside: dict[str, str]) -> None:
    """Threads call, and one parks all the time: the process ends by itself, at whatever step."""
    for us in range(500, 20_500, 1000):
        with Program([*parks, "leaves", str(us), "0"], inside) as program:
            program.lines()


def test_forks_at_any_moment(parks: list[str], inside: dict[str, str]) -> None:
    """Each child gets errors from its calls at once, and ends."""
    with Program([*parks, "leaves", "0", "100"], inside) as program:
        program.lines()


def test_python_ends_while_parked(env: dict[str, str]) -> None:
    """At once, also with a thread that waits."""
    threads = (
        "threading.Thread(target=lambda: raw('cuMemAlloc_v2', ctypes.byref(ctypes.c_uint64()), 4096), daemon=True)"
    )
    text = f"{CALLS}\nsay(park())\n{threads}.start()\ntime.sleep(0.1)\nsay(time.monotonic())"
    parked, when = _said(env, text)
    assert parked == "PARKED CHECKPOINT 0"
    assert time.monotonic() - float(when) < 5


@pytest.mark.parametrize("name", ["lock-hang", "checkpoint-hang"])
def test_python_ends_while_a_step_hangs(env: dict[str, str], name: str) -> None:
    """The driver's call is left behind."""
    text = f"{CALLS}\nfault({name!r})\nsay(park(wait=100))\nsay(time.monotonic())"
    with _program(env, text) as program:
        assert program.line().endswith("late")
        when = float(program.line())
        assert program.process.wait(60) == 0
    assert time.monotonic() - when < 5


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("lock-slow", ["RUNNING LOCK 600", "there", "PARKED CHECKPOINT 0"]),
        ("checkpoint-2", ["BROKEN CHECKPOINT 2", "there", "BROKEN CHECKPOINT 2"]),
        ("checkpoint-801", ["BROKEN CHECKPOINT 801", "there", "BROKEN CHECKPOINT 801"]),
    ],
)
def test_park_that_fails_changes_nothing(env: dict[str, str], name: str, answers: list[str]) -> None:
    """The program goes on; after a failed checkpoint the driver is never asked again."""
    text = f"{CALLS}\nfault({name!r})\nsay(park(ms=100))\nsay(read())\nfault('')\nsay(park())"
    assert _said(env, text) == answers


@pytest.mark.parametrize(("name", "step"), [("lock-hang", "LOCK"), ("checkpoint-hang", "CHECKPOINT")])
def test_step_that_hangs_is_told(env: dict[str, str], name: str, step: str) -> None:
    """A caller is told after its time, and so is one that asks again; it goes on when the driver does."""
    text = (
        f"{CALLS}\nfault({name!r})\nsay(park(wait=300))\nsay(back(wait=300))\nfault('')\nwhile 'late' in park(): pass\n"
    )
    with _program(env, f"{text}say(park(), back(), read())") as program:
        assert [program.line(), program.line()] == [f"RUNNING {step} 0 late"] * 2
        assert program.line() == "PARKED CHECKPOINT 0 RUNNING UNLOCK 0 there"


def test_return_is_tried_again_while_the_gpu_cannot_be_opened(env: dict[str, str]) -> None:
    """It stays parked if that lasts, and answers and keeps what needs no GPU."""
    text = f"""{CALLS}
own = new("cuMemAlloc_v2", 4096)
say(park())
fault("restore-801:1")
say(back(), raw("cuStreamSynchronize", 0), raw("cuMemFree_v2", own))
fault("restore-801:3")
say(back(ms=10000), read(), raw("cuMemFree_v2", own))
"""
    answers = ["PARKED CHECKPOINT 0", "PARKED RESTORE 801 0 0", "RUNNING UNLOCK 0 there 1"]
    assert _said(env, text) == answers


def test_memory_that_is_taken_meanwhile_loses_the_data_only(place: Place, env: dict[str, str]) -> None:
    """All calls fail from then on, also those that waited, and the program can end."""
    text = f"""{CALLS}
say(park())
codes = []
waits = threading.Thread(target=lambda: codes.append(raw("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 4096)))
waits.start()
input()
say(back())
waits.join()
say(codes, read(), raw("cuStreamQuery", 0), raw("cuCtxGetCurrent", ctypes.byref(ctypes.c_uint64())), park())
"""
    takes = f"{CALLS}\nsay(raw('cuMemAlloc_v2', ctypes.byref(ctypes.c_uint64()), {place.memory - 9} << 20))\ninput()"
    with _program(env, text) as program:
        assert program.line() == "PARKED CHECKPOINT 0"
        with _program(env, takes) as other:
            assert other.line() == "0"
            program.tell("")
            assert program.line() == "LOST RESTORE 2"
            assert program.line() == "[999] 999 999 999 LOST RESTORE 2"
            assert program.lines() == []


def test_error_of_the_system_is_final_the_second_time(env: dict[str, str]) -> None:
    """It may pass, so the return is tried again once."""
    text = f"""{CALLS}
say(park())
fault("restore-304")
begin = time.monotonic()
say(back(), time.monotonic() - begin > 0.9)
say(read())
"""
    assert _said(env, text) == ["PARKED CHECKPOINT 0", "LOST RESTORE 304 True", "999"]


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_killed_at_a_step_leaves_nothing(place: Place, env: dict[str, str], step: str) -> None:
    """Another program can have the whole GPU."""
    with _program(env, f"{CALLS}\nfault('kill-{step}')\npark()\nback()") as program:
        assert program.process.wait(60) == -signal.SIGKILL
    all_of_it = f"{CALLS}\nsay(raw('cuMemAlloc_v2', ctypes.byref(ctypes.c_uint64()), {place.memory - 9} << 20))"
    assert _said(env, all_of_it) == ["0"]


FORKS = f"""{CALLS}
say(park())
child = os.fork()
if not child:
    say(raw("cuStreamQuery", 0), read(), raw("cuInit", 0), park())
    os._exit(0)
os.waitpid(child, 0)
import subprocess
text = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
say(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout.strip())
say(back(), read())
child = os.fork()
if not child:
    say(raw("cuStreamQuery", 0))
    os._exit(0)
os.waitpid(child, 0)
"""


def test_fork_and_exec_while_parked(env: dict[str, str]) -> None:
    """A child gets the error of one that CUDA was not started in; another program begins anew; the parent returns."""
    assert _said(env, FORKS) == [
        "PARKED CHECKPOINT 0",
        "3 3 3 FORKED NONE 0",
        "0",
        "RUNNING UNLOCK 0 there",
        "3",
    ]


def _asks_for_nothing(connection: Connection) -> bool:
    """Return whether nothing comes for a while, but how much memory it has."""
    while not connection.is_silent(0.2):
        if not isinstance(connection.next(), Need):
            return False
    return True


def test_lease_is_given_back_and_asked_for_again(place: Place, env: dict[str, str]) -> None:
    """While parked the process asks for none, keeps none that crosses, and answers its server."""
    text = f"""{CALLS}
work = kernel("work_us1000")
launch(work)
call("cuCtxSynchronize")
input()
say(park())
def works():
    call("cuCtxSetCurrent", context)
    launch(work)
    say("launched again")
threading.Thread(target=works).start()
input()
say(back())
"""
    with place.stub() as stub, _program(env | place.env(), text) as program:
        connection = stub.accept()
        connection.charged_until(lambda: place.launches() == 1)
        whole = connection.grant(FOREVER)
        program.tell("")
        assert connection.expect(Done, lambda done: done.number == whole).want is None
        assert program.line() == "PARKED CHECKPOINT 0"
        crosses = connection.grant()
        assert connection.expect(Done, lambda done: done.number == crosses).want is None
        connection.say(Revoke(crosses))
        assert _asks_for_nothing(connection)
        program.tell("")
        connection.expect(Ask)
        connection.grant()
        assert {program.line(), program.line()} == {"RUNNING UNLOCK 0", "launched again"}
        until(lambda: place.launches() == 2)


def test_thread_that_waited_for_a_lease_asks_again_at_once(place: Place, env: dict[str, str]) -> None:
    """The one before was still being given back when the process was parked."""
    text = f"""{CALLS}
slow, work = kernel("work_us1000000"), kernel("work_us1000")
entered = []
def works():
    call("cuCtxSetCurrent", context)
    entered.append(threading.get_native_id())
    launch(work)
def waits():
    time.sleep(0.01)
    with open(f"/proc/self/task/{{entered[0]}}/stat") as file: return file.read().rpartition(")")[2].split()[0] == "S"
launch(slow)
say("launched")
input()
threading.Thread(target=works).start()
while not entered or not all(waits() for _ in range(5)): time.sleep(0.001)
say(park())
begin = time.monotonic()
say(back())
while threading.active_count() > 1: time.sleep(0.001)
say(time.monotonic() - begin < 0.5)
"""
    with place.stub() as stub, _program(env | place.env(), text) as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant()
        assert program.line() == "launched"
        connection.say(Revoke(lease))
        program.tell("")
        connection.expect(Done, lambda done: done.number == lease)
        connection.expect(Ask)
        connection.grant()
        assert [program.line() for _ in range(3)] == ["PARKED CHECKPOINT 0", "RUNNING UNLOCK 0", "True"]


def test_server_that_starts_anew_hears_of_no_use(place: Place, env: dict[str, str]) -> None:
    """The process connects again, and asks for nothing until it is back."""
    text = f"{CALLS}\nlaunch(kernel('work_us1000'))\nsay(park())\ninput()\nsay(back(), read())\ninput()"
    with _program(env | place.env(), text) as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.charged_until(lambda: place.launches() == 1)
            assert program.line() == "PARKED CHECKPOINT 0"
        with place.stub() as stub:
            connection = stub.accept()
            connection.next()  # what memory it has
            assert connection.needs
            assert connection.needs[0] >= 8 * MIB
            assert _asks_for_nothing(connection)
            program.tell("")
            assert program.line() == "RUNNING UNLOCK 0 there"
            program.tell("")


def test_states_and_steps_are_those_of_the_header() -> None:
    """The tests read them there."""
    assert STATES == ["RUNNING", "PARKED", "BROKEN", "LOST", "FORKED"]
    assert STEPS == ["NONE", "THREAD", "BLOCK", "LOCK", "DRAIN", "CHECKPOINT", "RESTORE", "UNLOCK", "STEPS"]


def test_idle_thread_of_the_gate_costs_nothing(env: dict[str, str]) -> None:
    """After the park no thread of the gate wakes by itself."""
    text = f"""{CALLS}
say(park())
def switches():
    return sum(int(open(f"/proc/self/task/{{task}}/status").read().split("voluntary_ctxt_switches:")[1].split()[0])
               for task in os.listdir("/proc/self/task") if int(task) != os.getpid())
time.sleep(0.2)
before = switches()
time.sleep(0.3)
say(switches() - before)
"""
    assert _said(env, text) == ["PARKED CHECKPOINT 0", "0"]


def test_several_ask_at_once(env: dict[str, str]) -> None:
    """One is served; the others are told that it is under way."""
    text = f"""{CALLS}
fault("lock-slow")
said = []
threads = [threading.Thread(target=lambda: said.append(park(ms=300))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
fault("")
say(said.count("RUNNING LOCK 600"), sum("late" in one for one in said), park(), back(), read())
"""
    (line,) = _said(env, text)
    assert line == "1 7 PARKED CHECKPOINT 0 RUNNING UNLOCK 0 there"


def test_wait_is_over_in_time_for_all(place: Place, env: dict[str, str]) -> None:
    """Threads that waited go on at once after the return."""
    text = f"""{CALLS}
say(park())
ended = []
def works(number):
    call("cuCtxSetCurrent", context)
    own = new("cuMemAlloc_v2", 4096)
    ended.append(number)
threads = [threading.Thread(target=works, args=[number]) for number in range(16)]
for thread in threads: thread.start()
time.sleep(0.1)
say(len(ended), back())
for thread in threads: thread.join(20)
say(len(ended))
"""
    assert _said(env, text) == ["PARKED CHECKPOINT 0", "0 RUNNING UNLOCK 0", "16"]
    until(lambda: not Board(place.folder / "boards", GPU).live(), "its memory stays")
