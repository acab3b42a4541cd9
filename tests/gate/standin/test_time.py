"""The time of a simulated GPU: how long kernels take, in what order, and what programs see of it."""

import itertools

import pytest

from tests.gate.standin.board import busy
from tests.gate.standin.conftest import FIRST, SECOND, Machine

PREAMBLE = """
import ctypes, time
from tests.gate.standin.driver import *

def now():
    return time.monotonic_ns() // 1000
"""


@pytest.mark.parametrize(
    ("name", "blocks", "expected"),
    [
        ("plain", 1, 70),
        ("work_us1000", 5, 1000),
        ("_ZN8__main__11work_us1000B2v1B4cw51E", 1, 1000),
        ("_us5_work_us20", 1, 20),
        ("work_usx", 300, 300),
        ("_usx_work_us20", 300, 20),
        ("work_us0", 1, 0),
    ],
)
def test_kernel_takes_the_time_in_its_name(machine: Machine, name: str, blocks: int, expected: int) -> None:
    """A number, a microsecond for each block, or the default; the last in the name counts, mangled or not."""
    machine.run(f"{PREAMBLE}\nstart(); launch(kernel({name!r}), {blocks})", US="70")
    (work,) = machine.board().log()
    assert work.end - work.start == expected


def test_launches_follow_each_other(machine: Machine) -> None:
    """Work of several streams runs in sequence, without gaps while some is waiting."""
    machine.run(
        f"""{PREAMBLE}
start()
streams = [new("cuStreamCreate", 1) for _ in range(3)]
for i in range(30):
    launch(kernel("work_us100000"), stream=streams[i % 3])  # long enough for a program that waits for its turn
"""
    )
    log = machine.board().log()
    assert len(log) == 30
    assert all(before.end == after.start for before, after in itertools.pairwise(log))
    assert busy(log) == machine.board().sums().busy == 3_000_000


def test_programs_see_the_time(machine: Machine) -> None:
    """Queries return "not ready" until the end, synchronization ends after it, and events measure what lies between."""
    out = machine.run(
        f"""{PREAMBLE}
start()
work, stream = kernel("work_us1000000"), new("cuStreamCreate", 0)
before, after = new("cuEventCreate", 0), new("cuEventCreate", 0)
call("cuEventRecord", before, stream)
launch(work, stream=stream)
call("cuEventRecord", after, stream)
print(raw("cuStreamQuery", stream), raw("cuEventQuery", after), raw("cuEventQuery", before))
call("cuEventSynchronize", after)
print(now())
print(raw("cuStreamQuery", stream), raw("cuEventQuery", after))
span = ctypes.c_float()
call("cuEventElapsedTime", ctypes.byref(span), before, after)
print(span.value)
work = kernel("work_us20000")
for form, wait in ("cuLaunchKernel", "cuCtxSynchronize"), ("cuLaunchKernel_ptsz", "cuStreamSynchronize_ptsz"):
    launch(work, form=form)
    call(wait, *[0] * wait.startswith("cuStream"))
    print(now())
"""
    ).split()
    log = machine.board().log()
    assert out[:3] == ["600", "600", "0"]
    assert int(out[3]) >= log[0].end
    assert out[4:6] == ["0", "0"]
    assert float(out[6]) >= 1000
    assert [int(seen) >= work.end for seen, work in zip(out[7:], log[1:], strict=True)] == [True, True]


def test_default_streams_order_others(machine: Machine) -> None:
    """The legacy stream and the others wait for each other, except non-blocking ones; per-thread ones are others."""
    out = machine.run(
        f"""{PREAMBLE}
start()
work = kernel("work_us1000000")
blocking, free = new("cuStreamCreate", 0), new("cuStreamCreate", 1)
launch(work)
print(*(raw("cuStreamQuery", stream) for stream in (0, 1, 2, blocking, free)), raw("cuStreamQuery_ptsz", 0))
call("cuCtxSynchronize")
launch(work, form="cuLaunchKernel_ptsz")
print(*(raw("cuStreamQuery", stream) for stream in (0, 1, 2, blocking, free)), raw("cuStreamQuery_ptsz", 0))
call("cuCtxSynchronize")
launch(work, stream=free)
print(*(raw("cuStreamQuery", stream) for stream in (0, 1, 2, blocking, free)), raw("cuStreamQuery_ptsz", 0))
"""
    ).splitlines()
    assert out == ["600 600 600 600 0 600", "600 600 600 0 0 600", "0 0 0 0 600 0"]


def test_stream_waits_for_an_event_of_another_gpu(machine: Machine) -> None:
    """Work behind such an event starts when it has completed, though its own GPU is idle."""
    machine.run(
        f"""{PREAMBLE}
start(0)
event, work = new("cuEventCreate", 0), kernel("work_us100000")
launch(work)
call("cuEventRecord", event, 0)
start(1)
stream = new("cuStreamCreate", 1)
call("cuStreamWaitEvent", stream, event, 0)
launch(work, stream=stream)
"""
    )
    (first,), (second,) = machine.board(FIRST).log(), machine.board(SECOND).log()
    assert second.start >= first.end


def test_host_functions_follow_earlier_work(machine: Machine) -> None:
    """A stream is not done before its host functions are, and they run in order when its work has ended."""
    out = machine.run(
        f"""{PREAMBLE}
start()
seen = []
launched = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: (seen.append((data, now())), time.sleep(0.5)))
called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(lambda s, e, d: seen.append((d, now())))
stream, event = new("cuStreamCreate", 0), new("cuEventCreate", 0)
launch(kernel("work_us20000"), stream=stream)
call("cuLaunchHostFunc", stream, launched, 1)
call("cuStreamAddCallback", stream, called, 2, 0)
call("cuEventRecord", event, stream)
print(raw("cuEventQuery", event), raw("cuStreamQuery", stream))
call("cuEventSynchronize", event)
print(raw("cuStreamQuery", stream))
print(*(number for number, _ in seen), *(at for _, at in seen))
"""
    ).split()
    assert out[:5] == ["600", "600", "0", "1", "2"]
    assert all(int(at) >= machine.board().log()[0].end for at in out[5:])


def test_queue_is_limited(machine: Machine) -> None:
    """The 1025th launch waits until the first has run: a program cannot queue without limit."""
    out = machine.run(
        f"""{PREAMBLE}
start()
work = kernel("work_us300000")
for _ in range(1025):
    launch(work)
print(now())
"""
    )
    log = machine.board().log()
    assert len(log) == 1025
    assert int(out) >= log[0].end


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("launch(0)", 400),
        ("launch(kernel('work'), blocks=0)", 1),
        ("call('cuLaunchKernel', kernel('work'), 1, 1, 1, 1025, 1, 1, 0, 0, None, None)", 1),
        ("call('cuCtxSetCurrent', 0); launch(1)", 201),
        ("new('cuCtxCreate_v2', 0, 7)", 101),
    ],
)
def test_invalid_launches_are_refused(machine: Machine, call: str, expected: int) -> None:
    """Launches that a driver refuses are refused, and are no work."""
    out = machine.run(f"{PREAMBLE}\nstart()\ntry:\n    {call}\nexcept Failed as error:\n    print(error.code)")
    assert int(out) == expected
    assert machine.board().log() == []


def test_every_way_to_launch_is_one_piece_of_work(machine: Machine) -> None:
    """Each form of a launch is."""
    machine.run(
        f"""{PREAMBLE}
start()
class Configuration(ctypes.Structure):
    _fields_ = [("sizes", ctypes.c_uint * 7), ("stream", Pointer), ("attributes", Pointer), ("count", ctypes.c_uint)]
class Launch(ctypes.Structure):
    _fields_ = [("function", Pointer), ("sizes", ctypes.c_uint * 7), ("stream", Pointer), ("parameters", Pointer)]
work, stream = kernel("work_us10"), new("cuStreamCreate", 0)
sizes = (ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0)
for form in "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz":
    launch(work, form=form)
for form in "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz":
    call(form, ctypes.byref(Configuration(sizes, stream, None, 0)), work, None, None)
call("cuLaunchCooperativeKernelMultiDevice", ctypes.byref(Launch(work, sizes, stream, None)), 1, 0)
call("cuFuncSetBlockShape", work, 1, 1, 1)
call("cuLaunch", work)
call("cuLaunchGrid", work, 1, 1)
call("cuLaunchGridAsync", work, 1, 1, stream)
"""
    )
    assert [work.end - work.start for work in machine.board().log()] == [10] * 10
