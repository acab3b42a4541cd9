"""The checkpoint of the stand-in driver: its steps, as measured on driver 580 (docs/designs/real-gpu.md)."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.gate.standin.conftest import FIRST, SECOND, Machine

QUICK = {"PARK_BASE": "0", "PARK_OUT": "0", "PARK_IN": "0"}

PARK = """
import ctypes, os, signal, sys, threading, time
from tests.gate.standin.driver import *

def step(name, *words, pid=None):
    arguments = (ctypes.c_uint64 * 8)(*words)
    function = getattr(library, "cuCheckpointProcess" + name.capitalize())
    return function(ctypes.c_int(os.getpid() if pid is None else pid), ctypes.byref(arguments))

def steps(*names):
    return [step(name) for name in names]

def state(pid=None):
    found = ctypes.c_int(-1)
    code = library.cuCheckpointProcessGetState(ctypes.c_int(pid or os.getpid()), ctypes.byref(found))
    return -code if code else found.value

def fault(name):
    os.environ["JUPYTER_GPU_STANDIN_PARK_FAULT"] = name

def read(memory, size=5):
    back = ctypes.create_string_buffer(size)
    call("cuMemcpyDtoH_v2", back, memory, Size(size))
    return back.raw.decode()

def written(memory, text=b"there"):
    call("cuMemcpyHtoD_v2", memory, text, Size(len(text)))
    return memory
"""
STARTED = f"{PARK}\nstart()\nusage, memory = memory, written(new('cuMemAlloc_v2', 8 << 20))\n"


def ask(machine: Machine, program: str, **more: str) -> Any:
    """Return what the program's last line prints."""
    return eval(machine.run(STARTED + program, None, **(QUICK | more)).splitlines()[-1])


def test_park_and_return(machine: Machine) -> None:
    """All four steps succeed, the GPU is closed between them, and contents and work are as before."""
    codes, states, closed, text, free = ask(
        machine,
        """
states = [state()]
def park(name):
    code = step(name)
    states.append(state())
    return code
def files():
    return sum(".board" in os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd"))
codes = [park("lock"), park("checkpoint")]
closed = files(), ".board" in open("/proc/self/maps").read()
codes += [park("restore"), park("unlock")]
launch(kernel("work_us10")); call("cuCtxSynchronize")
print((codes, states, (*closed, files()), read(memory), usage()[0] >> 20))
""",
    )
    assert codes == [0, 0, 0, 0]
    assert states == [0, 1, 2, 1, 0]
    assert closed == (0, False, 2)
    assert text == "there"
    assert free == 56


def test_memory_is_free_for_others_while_parked(machine: Machine) -> None:
    """The board has neither the process nor its memory, until it returns."""
    said = "print(steps('lock', 'checkpoint'), flush=True)\ninput()\nprint(steps('restore'), flush=True)\ninput()"
    program = f"{STARTED}\n{said}"
    with machine.start(program, None, **QUICK) as parked:
        assert parked.stdin
        assert parked.stdout
        assert parked.stdout.readline() == "[0, 0]\n"
        assert machine.board().live() == {}
        assert ask(machine, "print(len([new('cuMemAlloc_v2', 8 << 20) for _ in range(7)]))") == 7
        parked.stdin.write("\n")
        parked.stdin.flush()
        assert parked.stdout.readline() == "[0]\n"
        assert machine.board().live() == {parked.pid: 8 << 20}
        parked.communicate("\n", timeout=60)


def test_contents_of_every_kind_survive(machine: Machine) -> None:
    """Pools, mapped pieces, arrays, memory shared by a file, a second context, pinned memory; no address is read."""
    text, pinned, gone, mapped = ask(
        machine,
        """
pinned = new("cuMemHostAlloc", 4096, 0)
ctypes.memmove(pinned, b"host", 4)
pooled = written(new("cuMemAllocAsync", 4096, 0), b"pools")
second = new("cuCtxCreate_v2", 0, 1)
other = written(new("cuMemAlloc_v2", 4096), b"other")
call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_uint64()))
properties = (ctypes.c_int * 8)(1, 1, 1, 0)
handle, place = new("cuMemCreate", 2 << 20, ctypes.byref(properties), 0), new("cuMemAddressReserve", 2 << 20, 0, 0, 0)
call("cuMemMap", place, 2 << 20, 0, handle, 0)
call("cuMemSetAccess", place, 2 << 20, ctypes.byref((ctypes.c_int * 3)(1, 0, 3)), 1)
written(place, b"piece")
handle = ctypes.create_string_buffer(64)
call("cuIpcGetMemHandle", handle, memory)
steps("lock", "checkpoint")
host = ctypes.string_at(pinned, 4).decode()
lines = [line.split() for line in open("/proc/self/maps")]
def rights(address):
    return [one[1] for one in lines if int(one[0].split("-")[0], 16) <= address < int(one[0].split("-")[1], 16)]
gone = [rights(one)[0][:2] for one in (memory, pooled, other, place)]
steps("restore", "unlock")
print((read(memory) + read(pooled) + read(other), host, gone, read(place)))
""",
    )
    assert text == "therepoolsother"
    assert pinned == "host"
    assert gone == ["--"] * 4
    assert mapped == "piece"


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("steps('unlock', 'checkpoint', 'restore'), state()", ([401, 401, 401], 0)),
        ("steps('lock', 'lock', 'restore'), state()", ([0, 401, 401], 1)),
        ("steps('lock', 'checkpoint', 'lock', 'checkpoint', 'unlock'), state()", ([0, 0, 401, 401, 401], 2)),
        ("steps('lock', 'checkpoint', 'restore', 'checkpoint', 'restore', 'unlock')", [0] * 6),
        ("step('lock', pid=999999), state(999999), step('lock', pid=-1)", (304, -304, 304)),
        ("step('lock', 1 << 32), step('lock', 0, 1), step('lock'), step('unlock', 1)", (1, 1, 0, 1)),
        ("step('lock'), step('checkpoint', 1), step('checkpoint', 0, 0, 1), step('checkpoint')", (0, 1, 1, 0)),
        ("library.cuCheckpointProcessLock(os.getpid(), None)", 0),
    ],
)
def test_step_in_a_wrong_state_changes_nothing(machine: Machine, program: str, answer: object) -> None:
    """As on the driver; reserved fields must be 0, and arguments may be missing."""
    assert ask(machine, f"print(({program}))") == answer


def test_structures_follow_the_version(machine: Machine) -> None:
    """Maps since 13.0; own storage since 13.4, and never for the calling process."""
    parked = "steps('lock', 'checkpoint')\nprint((step('restore', 1, 0), step('restore', 0, 0, 1), step('restore')))"
    assert ask(machine, parked, VERSION="12090") == (1, 1, 0)
    assert ask(machine, parked, VERSION="13000") == (0, 401, 401)
    stored = (
        "steps('lock')\nprint((step('checkpoint', 8), step('checkpoint'), step('restore', 0, 0, 8), step('restore')))"
    )
    assert ask(machine, stored, VERSION="13040") == (801, 0, 801, 0)


def test_before_initialization(machine: Machine) -> None:
    """Every step, and the state, are refused."""
    assert (
        machine.run(f"{PARK}\nprint(steps('lock', 'checkpoint', 'restore', 'unlock'), state())") == "[3, 3, 3, 3] -3\n"
    )


def test_lock_waits_for_work(machine: Machine) -> None:
    """Beyond its timeout it is called off and calls go on; without one it waits for kernels and host functions."""
    late, works, waited = ask(
        machine,
        """
launch(kernel("work_us400000"))
late = step("lock", 50), state()
works = raw("cuMemsetD8_v2", memory, 0, Size(1))
launch(kernel("work_us300000"))
began = time.monotonic()
print((late, works, (step("lock"), time.monotonic() - began > 0.25)))
""",
    )
    assert late == (600, 0)
    assert works == 0
    assert waited == (0, True)


def test_lock_waits_for_a_host_function(machine: Machine) -> None:
    """It is work as a kernel is."""
    code = ask(
        machine,
        """
go = threading.Event()
hold = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait(30) and None)
call("cuLaunchHostFunc", 0, hold, None)
late = step("lock", 50)
go.set()
print((late, step("lock")))
""",
    )
    assert code == (600, 0)


def test_open_capture_is_parked(machine: Machine) -> None:
    """A graph that is being recorded goes on afterwards."""
    assert ask(
        machine,
        """
stream, work = new("cuStreamCreate", 0), kernel("work_us10")
call("cuStreamBeginCapture_v2", stream, 0)
launch(work, stream=stream)
codes = steps("lock", "checkpoint", "restore", "unlock")
launch(work, stream=stream)
graph = ctypes.c_uint64()
ended = raw("cuStreamEndCapture", stream, ctypes.byref(graph))
print((codes, ended, raw("cuGraphLaunch", new("cuGraphInstantiateWithFlags", graph.value, 0), 0)))
""",
    ) == ([0, 0, 0, 0], 0, 0)


def test_restore_by_map(machine: Machine) -> None:
    """To itself, to a free GPU of the same kind; unknown and incomplete maps are refused and change nothing."""
    program = f"""
def raw_uuid(text):
    return bytes.fromhex(text[4:].replace("-", ""))
def pairs(*names):
    global held
    held = ctypes.create_string_buffer(b"".join(map(raw_uuid, names)))
    return ctypes.addressof(held), len(names) // 2
def uuid():
    found = ctypes.create_string_buffer(16)
    call("cuDeviceGetUuid_v2", found, 0)
    return found.raw.hex()[:8]
def bus():
    found = ctypes.create_string_buffer(32)
    call("cuDeviceGetPCIBusId", found, ctypes.c_int(32), 0)
    return found.value.decode()
first, second, unknown = {FIRST!r}, {SECOND!r}, "GPU-99999999-0000-4000-8000-000000000009"
steps("lock", "checkpoint")
wrong = (first, unknown), (unknown, first), (first, second), (first, first, first, first)
refused = [step("restore", *pairs(*names)) for names in wrong]
"""

    def run(rest: str, mebibytes: int = 64) -> Any:
        gpus = f"{FIRST}:64,{SECOND}:{mebibytes}"
        settings = f"import os\nos.environ.update(JUPYTER_GPU_STANDIN_GPUS={gpus!r}, CUDA_VISIBLE_DEVICES='0')\n"
        return eval(machine.run(f"{settings}{STARTED}{program}{rest}", None, **QUICK).splitlines()[-1])

    same = "print((refused, state(), step('restore', *pairs(first, first)), uuid()))"
    assert run(same, 32) == ([1, 1, 1, 1], 2, 0, "11111111")
    moved = "print((step('restore', *pairs(first, second)), step('unlock'), uuid(), bus(), read(memory)))"
    program = program.replace("(first, second), ", "")  # it is of the same kind now
    assert run(moved) == (0, 0, "22222222", "0000:02:00.0", "there")
    assert run(f"fault('stale-pci')\n{moved}") == (0, 0, "22222222", "0000:01:00.0", "there")


def test_restore_that_does_not_fit_is_final(machine: Machine) -> None:
    """2, then 304 for ever; the state is parked, but the GPU is open."""
    begin = "steps('lock', 'checkpoint'); print(flush=True); input()"
    first = "print([*steps('restore'), *steps('restore', 'unlock')], state(), flush=True); input()"
    program = f"{STARTED}\n{begin}\n{first}\nprint(steps('restore'), flush=True); input()"
    with machine.start(program, None, **QUICK) as parked:
        assert parked.stdin
        assert parked.stdout
        parked.stdout.readline()
        with machine.start(f"{STARTED}\nnew('cuMemAlloc_v2', 52 << 20); print(flush=True); input()") as other:
            assert other.stdout
            other.stdout.readline()
            parked.stdin.write("\n")
            parked.stdin.flush()
            assert parked.stdout.readline() == "[2, 304, 401] 2\n"
            assert parked.pid in machine.board().live()
            other.communicate("\n", timeout=60)
        assert parked.communicate("\n\n", timeout=60)[0] == "[304]\n"


def test_checkpoint_that_fails_changes_nothing_but_later_parks(machine: Machine) -> None:
    """Managed memory, and no room in the host: the program goes on, and can never be parked again."""
    again = "codes += steps('checkpoint', 'unlock')\nprint((codes, read(memory)))"
    managed = "new('cuMemAllocManaged', 4096, 1)\ncodes = steps('lock', 'checkpoint', 'unlock', 'lock')\n"
    assert ask(machine, managed + again) == ([0, 801, 0, 0, 999, 0], "there")
    short = """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20), used + (2 << 20)))
codes = steps('lock', 'checkpoint', 'unlock', 'lock')
"""
    assert ask(machine, short + again) == ([0, 2, 0, 0, 999, 0], "there")


def test_steps_take_their_time(machine: Machine) -> None:
    """A base, and a time for each byte in both directions."""
    program = """
def seconds(name):
    began = time.monotonic()
    assert step(name) == 0
    return time.monotonic() - began
seconds("lock")
print((seconds("checkpoint"), seconds("restore")))
"""
    out, back = ask(machine, program, PARK_BASE="50", PARK_OUT="40", PARK_IN="80")
    assert 0.25 <= out < 0.5
    assert 0.15 <= back < 0.4


def test_node_is_closed_and_opened(machine: Machine, tmp_path: Path) -> None:
    """While parked it is not open; a return without it is refused, opens nothing, and works as soon as it is there."""
    nodes = [tmp_path / "first", tmp_path / "second"]
    for node in nodes:
        node.touch()
    answer = ask(
        machine,
        """
node = os.environ["JUPYTER_GPU_STANDIN_NODES"].split(",")[1]
def opened():
    paths = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
    return sum(path.startswith(os.path.dirname(node)) for path in paths)
counts = [opened()]
steps("lock", "checkpoint"); counts.append(opened())
os.rename(node, node + ".away")
codes = steps("restore", "restore"); counts.append(opened())
os.rename(node + ".away", node)
codes += steps("restore", "unlock"); counts.append(opened())
print((codes, counts, read(memory)))
""",
        NODES=",".join(map(str, nodes)),
    )
    codes, counts, text = answer
    assert codes == [801, 801, 0, 0]
    assert counts == [4, 0, 0, 4]  # the two nodes and the two boards
    assert text == "there"


def test_gpu_without_its_node_is_not_there(machine: Machine, tmp_path: Path) -> None:
    """As long as it may not be opened; cuInit looks again."""
    out = machine.run(
        f"{PARK}\nprint(raw('cuInit', 0)); open({str(tmp_path / 'late')!r}, 'w'); print(raw('cuInit', 0))",
        NODES=f"{tmp_path / 'late'},{tmp_path / 'never'}",
    )
    assert out == "100\n0\n"


@pytest.mark.parametrize(
    ("name", "program", "answer"),
    [
        ("checkpoint-2", "steps('lock', 'checkpoint', 'unlock')", [0, 2, 0]),
        ("checkpoint-801", "steps('lock', 'checkpoint', 'unlock')", [0, 801, 0]),
        ("restore-801:2", "steps('lock', 'checkpoint', 'restore', 'restore', 'restore')", [0, 0, 801, 801, 0]),
        ("restore-304", "steps('lock', 'checkpoint', 'restore'), state()", ([0, 0, 304], 2)),
        ("lock-slow", "step('lock', 20), state(), fault('')", (600, 0, None)),
    ],
)
def test_faults(machine: Machine, name: str, program: str, answer: object) -> None:
    """Each is asked for by a variable, that is read at each step."""
    assert ask(machine, f"fault({name!r})\nprint(({program}))") == answer


@pytest.mark.parametrize("name", ["lock", "checkpoint", "restore", "unlock"])
def test_kill_in_a_step(machine: Machine, name: str) -> None:
    """The GPU is free at once, whichever step it was."""
    program = machine.start(
        f"{STARTED}\nfault('kill-{name}')\nsteps('lock', 'checkpoint', 'restore', 'unlock')", None, **QUICK
    )
    program.communicate(timeout=60)
    assert program.returncode == -signal.SIGKILL
    assert machine.board().live() == {}


@pytest.mark.parametrize("name", ["lock", "checkpoint"])
def test_step_that_hangs(machine: Machine, name: str) -> None:
    """It goes on when the fault ends."""
    assert ask(
        machine,
        f"""
codes = []
fault("{name}-hang")
thread = threading.Thread(target=lambda: codes.extend(steps("lock", "checkpoint", "restore", "unlock")))
thread.start()
thread.join(0.2)
hung = thread.is_alive()
fault("")
thread.join(20)
print((hung, codes))
""",
    ) == (True, [0, 0, 0, 0])


def test_forked_child_keeps_the_gpu_open(machine: Machine) -> None:
    """A child forked before the park has the files, one forked while parked has none; neither can use the driver."""
    assert ask(
        machine,
        """
def child():
    pipe = os.pipe()
    pid = os.fork()
    if not pid:
        links = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
        os.write(pipe[1], repr((sum(".board" in one for one in links), raw("cuCtxSynchronize"), state())).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return eval(os.read(pipe[0], 100))
before = child()
steps("lock", "checkpoint")
during = child()
print((before, during, steps("restore", "unlock"), read(memory)))
""",
    ) == ((2, 3, -3), (0, 3, -3), [0, 0], "there")
