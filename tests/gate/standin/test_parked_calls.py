"""Calls while the process is locked and while it is parked, against what was measured on driver 580."""

import re
import signal
from pathlib import Path

import pytest

from tests.gate.building import build_standin_nvml
from tests.gate.standin.clients import BINDINGS, BUILD, ROOT, python_of
from tests.gate.standin.conftest import FIRST, Machine
from tests.gate.standin.test_checkpoint import QUICK, STARTED

FOUND = ROOT / "benchmarks" / "survey" / "found" / "driver-580.tsv"
MEASURED = {name: tuple(rest) for name, *rest in (line.split("\t") for line in FOUND.read_text().splitlines()[1:])}
DEFINED = re.compile(r"^API CUresult (cu\w+)\([^{]*\)\s*\{\s*(?:ENTER\((\w+)\))?", re.MULTILINE)
WITH_CONTENTS = {"cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"}
"""Measured with an empty box, so they returned; with a full one they copy."""


def answers() -> dict[str, str | None]:
    """Return what each function of the stand-in does: the word in its ENTER, or None."""
    sources = [path.read_text() for path in sorted(BUILD.parent.glob("*.c"))]
    return {name: word or None for source in sources for name, word in DEFINED.findall(source) if "#" not in name}


def base(symbol: str) -> str:
    """Return a function's name without the endings of its forms."""
    return re.sub(r"_v\d+$", "", re.sub(r"_pts[zd]$|_ptds$", "", symbol))


def expected(name: str) -> str | None:
    """Return what was measured: calls that failed while running tell nothing, so they wait, as newer ones do."""
    running, locked, parked = MEASURED.get(name, ("?", "?", "?"))
    if parked == "ends":
        return "WAITS_OR_ENDS" if locked.startswith("waits") else "ENDS"
    if parked == "304":
        return "FAILS"
    return None if (running, locked, parked) == ("0", "0", "0") and name not in WITH_CONTENTS else "WAITS"


def test_every_function_does_what_was_measured() -> None:
    """Each function that the stand-in has is declared as the table says."""
    declared = {
        name: word for name, word in answers().items() if not name.startswith(("cuCheckpoint", "cuGetExportTable"))
    }
    assert len(declared) > 250
    assert {name: word for name, word in declared.items() if word != expected(base(name))} == {}


CALLS = {
    "cuStreamQuery": "raw('cuStreamQuery', 0)",
    "cuEventQuery": "raw('cuEventQuery', event)",
    "cuStreamSynchronize": "raw('cuStreamSynchronize', 0)",
    "cuEventSynchronize": "raw('cuEventSynchronize', event)",
    "cuCtxSynchronize": "raw('cuCtxSynchronize')",
    "cuEventElapsedTime": "raw('cuEventElapsedTime', ctypes.byref(ctypes.c_float()), event, event)",
    "cuMemAllocAsync": "raw('cuMemAllocAsync', ctypes.byref(ctypes.c_uint64()), 512, 0)",
    "cuMemAllocFromPoolAsync": "raw('cuMemAllocFromPoolAsync', ctypes.byref(ctypes.c_uint64()), 512, pool, 0)",
    "cuMemPoolDestroy": "raw('cuMemPoolDestroy', pool)",
    "cuModuleUnload": "raw('cuModuleUnload', module)",
}
READY = f"""{STARTED}
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
module = new("cuModuleLoadData", b"image")
work = new("cuModuleGetFunction", module, b"work_us10")
event = new("cuEventCreate", 0)
call("cuEventRecord", event, 0)
pool = new("cuMemPoolCreate", ctypes.byref((ctypes.c_int * 22)(1, 0, 1, 0)))
context = new("cuCtxGetCurrent")
"""


def test_table_names_all_calls_that_end_the_process() -> None:
    """So each of them is called below."""
    assert set(CALLS) == {name for name, (_, _, parked) in MEASURED.items() if parked == "ends"}


@pytest.mark.parametrize("name", CALLS)
def test_call_ends_the_parked_process(machine: Machine, name: str) -> None:
    """It is lost, as by the driver."""
    program = machine.start(
        f"{READY}\nprint(steps('lock', 'checkpoint'), flush=True)\n{CALLS[name]}\nprint('alive')", None, **QUICK
    )
    out, _ = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGSEGV
    assert out == "[0, 0]\n"


DURING = f"""{READY}
def during(*calls):
    # Return what each of the calls gave before the return, or "waits" and what it gave afterwards.
    answers, ended = {{}}, {{}}
    def one(text):
        raw("cuCtxSetCurrent", context)
        begun.release()
        ended[text] = eval(text)
    begun = threading.Semaphore(0)
    threads = [threading.Thread(target=one, args=[text], daemon=True) for text in calls]
    for thread in threads:
        thread.start()
    for _ in calls:
        begun.acquire()
    time.sleep(0.3)
    before = dict(ended)
    back()
    for thread in threads:
        thread.join(20)
    return [before.get(text, ("waits", ended.get(text))) for text in calls]
"""
WAITING = (
    "raw('cuInit', 0)",
    "raw('cuMemsetD8_v2', memory, 0, Size(1))",
    "raw('cuMemAlloc_v2', ctypes.byref(ctypes.c_uint64()), 4096)",
    "raw('cuLaunchKernel', work, 1, 1, 1, 1, 1, 1, 0, 0, None, None)",
    "raw('cuEventRecord', event, 0)",
    "raw('cuStreamWriteValue32_v2', 0, memory, ctypes.c_uint32(1), ctypes.c_uint(0))",
    "raw('cuCtxGetLimit', ctypes.byref(Size()), 0)",
)
RETURNING = (
    "raw('cuCtxGetCurrent', ctypes.byref(ctypes.c_uint64()))",
    "raw('cuDevicePrimaryCtxRetain', ctypes.byref(ctypes.c_uint64()), 0)",
    "raw('cuDeviceGetCount', ctypes.byref(ctypes.c_int()))",
    "raw('cuPointerGetAttribute', ctypes.byref(ctypes.c_int()), 2, memory)",
    "raw('cuMemAddressReserve', ctypes.byref(ctypes.c_uint64()), 2 << 20, 0, 0, 0)",
    "raw('cuStreamWaitEvent', 0, event, 0)",
    "raw('cuLibraryLoadData', ctypes.byref(ctypes.c_uint64()), b'image', None, None, 0, None, None, 0)",
)
FAILING = (
    "raw('cuMemGetInfo_v2', ctypes.byref(Size()), ctypes.byref(Size()))",
    "raw('cuDeviceGetName', ctypes.create_string_buffer(32), ctypes.c_int(32), 0)",
    "raw('cuIpcGetMemHandle', ctypes.create_string_buffer(64), memory)",
)


def test_calls_while_parked(machine: Machine) -> None:
    """Those that wait go on rightly afterwards, those that return are right, four fail with 304."""
    out = machine.run(
        f"""{DURING}
steps("lock", "checkpoint")
def back():
    assert steps("restore", "unlock") == [0, 0]
print(during(*{WAITING + RETURNING + FAILING!r}))
""",
        None,
        **QUICK,
    )
    waits, returns, fails = [("waits", 0)] * len(WAITING), [0] * len(RETURNING), [304] * len(FAILING)
    assert eval(out) == waits + returns + fails


def test_calls_while_locked(machine: Machine) -> None:
    """None fails or ends the process: pools wait, too, and queries return."""
    queries = tuple(CALLS[name] for name in CALLS if name.startswith(("cuStream", "cuEvent", "cuCtx")))
    pools = tuple(CALLS[name] for name in ("cuMemAllocAsync", "cuModuleUnload"))
    out = machine.run(
        f"""{DURING}
steps("lock")
def back():
    assert steps("unlock") == [0]
print(during(*{WAITING + pools + RETURNING + FAILING + queries!r}))
""",
        None,
        **QUICK,
    )
    waits = [("waits", 0)] * (len(WAITING) + len(pools))
    assert eval(out) == waits + [0] * (len(RETURNING) + len(FAILING) + len(queries))


def test_thread_that_waits_for_work_is_waited_for(machine: Machine) -> None:
    """One that was inside a synchronisation before the lock returns rightly."""
    out = machine.run(
        f"""{READY}
launch(kernel("work_us300000"))
codes = []
def waits():
    raw("cuCtxSetCurrent", context)
    codes.append(raw("cuStreamSynchronize", 0))
thread = threading.Thread(target=waits)
thread.start()
time.sleep(0.1)
print(steps("lock", "checkpoint"))
thread.join(20)
print(codes)
""",
        None,
        **QUICK,
    )
    assert out == "[0, 0]\n[0]\n"


def test_threads_at_work_are_parked_again_and_again(machine: Machine) -> None:
    """Threads that launch, copy and allocate without end stop and go on, and see their own data each time."""
    out = machine.run(
        f"""{READY}
end, wrong, done = False, [], [0] * 4
def works(number):
    raw("cuCtxSetCurrent", context)
    while not end:
        own = written(new("cuMemAlloc_v2", 4096), b"%05d" % number)
        raw("cuLaunchKernel", work, 1, 1, 1, 1, 1, 1, 0, 0, None, None)
        if read(own) != "%05d" % number:
            wrong.append(number)
        call("cuMemFree_v2", own)
        done[number] += 1
threads = [threading.Thread(target=works, args=[number]) for number in range(4)]
for thread in threads:
    thread.start()
codes, grown = [], []
for _ in range(20):
    codes += steps("lock", "checkpoint")
    time.sleep(0.05)  # a thread between two calls counts its round, and waits in the next call
    before = sum(done)
    time.sleep(0.01)
    grown.append(sum(done) - before)
    codes += steps("restore", "unlock")
    before = sum(done)
    while sum(done) == before:
        time.sleep(0.001)
end = True
for thread in threads:
    thread.join(20)
print((set(codes), set(grown), wrong))
""",
        None,
        **QUICK,
    )
    assert eval(out) == ({0}, {0}, [])


NVML = """
nvml = ctypes.CDLL(os.environ["NVML"])
opened = lambda: sum(os.path.realpath(f"/proc/self/fd/{n}") == os.environ["NODE"] for n in os.listdir("/proc/self/fd"))
assert nvml.nvmlInit_v2() == 0
print(opened(), steps("lock", "checkpoint"), opened())
def back():
    assert steps("restore", "unlock") == [0, 0]
    print(opened())
count = ctypes.c_uint()
print(during("nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))", "nvml.nvmlInit_v2()"), count.value)
"""


def test_nvml_waits(machine: Machine, tmp_path: Path) -> None:
    """All of NVML waits until the process runs again; while it is parked NVML has nothing open."""
    library, node = build_standin_nvml(tmp_path), tmp_path / "node"
    node.touch()
    (tmp_path / "list").write_text(f"{FIRST} {node}\n")
    names = {"NVML": str(library), "NODE": str(node), "STANDIN_NVML": str(tmp_path / "list")}
    out = machine.run(f"import os\nos.environ.update({names!r})\n{DURING}{NVML}", None, **QUICK)
    assert out.splitlines() == ["1 [0, 0] 0", "1", "[('waits', 0), ('waits', 0)] 1"]


PARKS = """
import os
of(driver.cuCtxSetCurrent(of(driver.cuDevicePrimaryCtxRetain(0))))
memory = of(driver.cuMemAlloc(1 << 20))
of(driver.cuMemcpyHtoD(memory, b"there and back", 14))
own = os.getpid()
lock = driver.CUcheckpointLockArgs()
lock.timeoutMs = 1000
states = [of(driver.cuCheckpointProcessGetState(own)).name]
of(driver.cuCheckpointProcessLock(own, lock))
of(driver.cuCheckpointProcessCheckpoint(own, driver.CUcheckpointCheckpointArgs()))
states.append(of(driver.cuCheckpointProcessGetState(own)).name)
restore = driver.CUcheckpointRestoreArgs()
if hasattr(restore, "gpuPairs"):
    uuids = [of(driver.cuDeviceGetUuid(device)) for device in range(of(driver.cuDeviceGetCount()))]
    pairs = [driver.CUcheckpointGpuPair() for _ in uuids]
    for pair, uuid in zip(pairs, uuids):
        pair.oldUuid = pair.newUuid = uuid
    restore.gpuPairs, restore.gpuPairsCount = pairs, len(pairs)
of(driver.cuCheckpointProcessRestore(own, restore))
of(driver.cuCheckpointProcessUnlock(own, driver.CUcheckpointUnlockArgs()))
back = bytearray(14)
of(driver.cuMemcpyDtoH(back, memory, 14))
print(back.decode(), *states, of(driver.cuCheckpointProcessGetRestoreThreadId(own)) == own)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["bindings12", "bindings13"])
def test_cuda_bindings_parks_itself(machine: Machine, name: str) -> None:
    """An unmodified client passes its own structures, in the versions 13 with a map of all GPUs to themselves."""
    out = machine.run(BINDINGS + PARKS, python_of(name), **QUICK)
    assert out == "there and back CU_PROCESS_STATE_RUNNING CU_PROCESS_STATE_CHECKPOINTED True\n"


NUMBA = """
import ctypes, os, numpy
from numba import cuda

library = ctypes.CDLL("libcuda.so.1")
there = cuda.to_device(numpy.arange(100.0))
stream, event = cuda.stream(), cuda.event()
event.record(stream)
nothing = ctypes.byref((ctypes.c_uint64 * 8)())
names = "Lock", "Checkpoint", "Restore", "Unlock"
print([getattr(library, f"cuCheckpointProcess{name}")(os.getpid(), nothing) for name in names])
event.synchronize()
print((cuda.to_device(there).copy_to_host() == numpy.arange(100.0)).all())
"""


@pytest.mark.timeout(900)
def test_numba_is_parked(machine: Machine) -> None:
    """Its arrays, streams and events are as before."""
    assert machine.run(NUMBA, python_of("numba"), **QUICK) == "[0, 0, 0, 0]\nTrue\n"
