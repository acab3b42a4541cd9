"""Parking that goes wrong: calls out of order, a GPU that is denied or full, work that does not end, forks, kills."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_void_p
from pathlib import Path
from typing import Any

from . import parking, process
from .answers import Case, ask, say
from .devices import Door, nodes_away
from .driver import Driver, DriverError

_SIZE, _WORD = 64 * 2**20, 0x5EED5EED


class Program:
    """A process with a context, and memory whose contents are known."""

    def __init__(self, size: int = _SIZE) -> None:
        self.driver = Driver()
        self.driver.start()
        self.address, self._size = self.driver.allocate(size), size
        self.driver.fill(self.address, size, _WORD)
        self.driver.need("cuCtxSynchronize")
        self.steps = parking.Steps(self.driver)

    def park(self) -> list[int]:
        """Return the results of lock and checkpoint, and the state."""
        return [self.steps.lock(), self.steps.checkpoint(), self.steps.state()]

    def back(self, *pairs: tuple[bytes, bytes]) -> list[int]:
        """Return the results of restore and unlock, and the state."""
        return [self.steps.restore(pairs), self.steps.unlock(), self.steps.state()]

    def works(self) -> object:
        """Tell whether memory has its contents, and a kernel, a fill and a new allocation work."""
        if (state := self.steps.state()) > 0:
            return f"not tried in state {state}, where calls wait"
        try:
            right = self.driver.holds(self.address, self._size, _WORD)
            more = self.driver.allocate(2**20)
            self.driver.fill(more, 2**20, 7)
            launched = self.driver.spin(0.001), self.driver.call("cuCtxSynchronize")
            return {"contents": right, "fill": set(self.driver.words(more, 64)) == {7}, "kernel": launched}
        except DriverError as error:
            return str(error)


def order() -> object:
    """Results and states of calls that come in a wrong order, with their milliseconds."""
    driver = Driver()
    early = parking.Steps(driver)
    before = {"before cuInit": [early.lock(), early.state(), early.restore_thread()]}
    program = Program()
    steps = program.steps
    running = [steps.checkpoint(), steps.restore(), steps.unlock(), steps.state()]
    locked = [steps.lock(), steps.lock(), steps.restore(), steps.state()]
    parked = [steps.checkpoint(), steps.checkpoint(), steps.lock(), steps.unlock(), steps.state()]
    back = [steps.restore(), steps.restore(), steps.checkpoint(), steps.state()]
    again = [steps.restore(), steps.unlock(), steps.unlock(), steps.state()]
    none = parking.Steps(driver, pid=2**22 - 7)
    return {
        **before,
        "running: checkpoint, restore, unlock, state": running,
        "lock, lock, restore, state": locked,
        "checkpoint, checkpoint, lock, unlock, state": parked,
        "restore, restore, checkpoint, state": back,
        "restore, unlock, unlock, state": again,
        "no such process": [none.lock(), none.state()],
        "works": program.works(),
        "calls": steps.milliseconds,
    }


def maps() -> object:
    """Restore with a map of the GPU to itself, and with maps that cannot be."""
    program = Program()
    own, strange = program.driver.uuid(), bytes(range(16))
    found: dict[str, object] = {"identity": [*program.park(), *program.back((own, own))], "works": program.works()}
    for name, pair in (("new one unknown", (own, strange)), ("old one unknown", (strange, own))):
        found[name] = [*program.park(), program.steps.restore([pair]), program.steps.state()]
        found[f"{name}, then the GPU itself"] = program.back((own, own))
        found[f"{name}, then without a map"] = program.back()
        found[f"{name}, works"] = program.works()
        say(**{name: found})
    found["calls"] = program.steps.milliseconds
    return found


def denied() -> object:
    """Restore while a control group denies the GPU, twice, and after it allows the GPU again."""
    door = Door()
    door.open()
    program = Program()
    park = program.park()
    door.close()
    say(park=park, **process.holds())
    tries = [[program.steps.restore(), program.steps.state()] for _ in range(2)]
    say(denied=tries, unlock=[program.steps.unlock(), program.steps.state()], **process.holds())
    door.open()
    back = program.back()
    return {"park": park, "denied": tries, "allowed": back, "works": program.works(), **process.holds()}


def node_away() -> object:
    """Restore while the GPU's device node is gone, and after it is there again."""
    program = Program()
    park = program.park()
    with nodes_away():
        tries = [[program.steps.restore(), program.steps.state()] for _ in range(2)]
        made = [str(path) for path in sorted(os.scandir("/dev"), key=lambda entry: entry.name) if "nvidia" in path.name]
        say(away=tries, nodes=made, **process.holds())
    back = program.back() if program.steps.state() == 2 else program.steps.unlock()
    return {"park": park, "away": tries, "back": back, "works": program.works(), "calls": program.steps.milliseconds}


def _other(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"from benchmarks.survey.failures import *\n{code}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def fill_gpu(leave: int) -> None:
    """Take the GPU's memory but for some bytes, until a line comes."""
    driver = Driver()
    driver.start()
    size = driver.free_memory() - leave
    while size > 2**26:
        part = min(size, 2**33)
        try:
            driver.allocate(part)
        except DriverError:
            break
        size -= part
    print(driver.free_memory() >> 20, flush=True)
    sys.stdin.readline()


def full() -> object:
    """Restore 2 GiB while another program has nearly all of the GPU, twice, and after that program has ended."""
    program = Program(2 * 2**30)
    park = program.park()
    other = _other(f"fill_gpu({2**30})")
    assert other.stdout
    left = other.stdout.readline().strip()
    tries = [[program.steps.restore(), program.steps.state()] for _ in range(2)]
    say(park=park, left=left, full=tries, **process.holds())
    other.communicate("end\n")
    time.sleep(1)
    free = process.smi("gpu", "memory.free")
    own = program.driver.uuid()
    back = program.back()
    mapped = [program.steps.restore([(own, own)]), program.steps.state()]
    return {
        "park": park,
        "MiB left": left,
        "full": tries,
        "MiB free then": free,
        "back": back,
        "by map": mapped,
        "works": program.works(),
        "calls": program.steps.milliseconds,
    }


def busy() -> object:
    """Lock while a kernel of two seconds runs: with a limit of 300 ms, then with none."""
    program = Program()
    program.driver.spin(0.001)
    program.driver.need("cuCtxSynchronize")
    program.driver.spin(2)
    short = [program.steps.lock(300), program.steps.state()]
    during = [program.driver.call("cuCtxGetCurrent", byref(c_void_p())), program.driver.spin(0.001)]
    long = [program.steps.lock(0), program.steps.state()]
    rest = [program.steps.checkpoint(), *program.back()]
    return {"300 ms": short, "calls after that": during, "no limit": long, "then": rest,
            "works": program.works(), "calls": program.steps.milliseconds}  # fmt: skip


def waiting() -> object:
    """Lock while another thread of the process waits for the GPU in a call of the driver."""
    program = Program()
    program.driver.spin(0.001)
    program.driver.need("cuCtxSynchronize")

    def wait() -> None:
        program.driver.use()
        program.driver.call("cuCtxSynchronize")

    program.driver.spin(1.5)
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    codes = [program.steps.lock(300), program.steps.state(), program.steps.lock(0), program.steps.state()]
    codes.append(program.steps.unlock())
    thread.join(10)
    return {"codes": codes, "thread ended": not thread.is_alive(), "calls": program.steps.milliseconds}


def host_callback() -> object:
    """Lock while a callback of the host runs, which itself asks the driver."""
    program = Program()
    seen: list[int] = []

    def slow(_: object) -> None:
        time.sleep(1)
        seen.append(1)

    callback = ctypes.CFUNCTYPE(None, c_void_p)(slow)
    program.driver.need("cuLaunchHostFunc", c_void_p(), callback, None)
    codes = [program.steps.lock(200), program.steps.state(), program.steps.lock(5000), program.steps.state()]
    return {"codes": codes, "callback ended": bool(seen), "rest": [program.steps.checkpoint(), *program.back()],
            "calls": program.steps.milliseconds}  # fmt: skip


def capture() -> object:
    """Lock while a stream is being captured."""
    program = Program()
    stream, graph = c_void_p(), c_void_p()
    program.driver.need("cuStreamCreate", byref(stream), 1)
    program.driver.spin(0)
    found = {}
    for mode, name in ((0, "global"), (2, "relaxed")):
        program.driver.need("cuStreamBeginCapture_v2", stream, mode)
        launched = program.driver.spin(0.001, stream)
        codes = [program.steps.lock(1000), program.steps.state()]
        if codes[0] == 0:
            codes += [program.steps.checkpoint(), *program.back()]
        ended = program.driver.call("cuStreamEndCapture", stream, byref(graph))
        found[name] = {"launched": launched, "lock, state, rest": codes, "end of capture": ended}
    return {**found, "works": program.works(), "calls": program.steps.milliseconds}


def _forked(work: Callable[[], object]) -> int:
    """Fork a child that says what it holds, and waits to be killed; return its pid."""
    pid = os.fork()
    if pid == 0:
        say(child=work(), **process.holds())
        time.sleep(60)
        os._exit(0)
    time.sleep(0.5)
    return pid


def forks() -> object:
    """A child that was forked before the park, one forked and one executed while parked; what each of them holds."""
    program = Program()
    found: dict[str, object] = {"running": process.holds()}
    child = _forked(lambda: [program.steps.state(), parking.Steps(program.driver).state()])
    found["child of before"] = process.holds(child)
    found["park"] = program.park()
    found["parked"], found["child while parked"] = process.holds(), process.holds(child)
    found["listed"] = [process.listed(os.getpid()), process.listed(child)]
    began = time.monotonic()
    look = "from benchmarks.survey import process; print(process.holds())"
    done = subprocess.run([sys.executable, "-c", look], check=False, capture_output=True, text=True)
    found["executed while parked"] = [done.stdout, done.stderr[-200:], round(time.monotonic() - began, 2)]
    late = _forked(lambda: "forked while parked")
    found["forked while parked"] = process.holds(late)
    found["back"] = program.back()
    found["children after"] = [process.holds(child), process.holds(late)]
    for pid in (child, late):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return {**found, "works": program.works()}


def managed() -> object:
    """Checkpoint with 1 MiB of managed memory; then unlock, and whether the process still works."""
    program = Program()
    address = ctypes.c_uint64()
    made = program.driver.call("cuMemAllocManaged", byref(address), c_size_t(2**20), 1)
    lock, checkpoint, state = program.park()
    found: dict[str, object] = {"allocated": made, "lock": lock, "checkpoint": checkpoint, "state": state}
    say(**found, **process.holds())
    if state == 2:
        found["back"] = program.back()
    else:
        found["unlock"] = [program.steps.unlock(), program.steps.state()]
    if program.steps.state() == 0:
        found["works"] = program.works()
        program.driver.call("cuMemFree_v2", address)
        found["freed, then a park"] = [*program.park(), *program.back()]
    return {**found, "calls": program.steps.milliseconds}


def shared_memory() -> object:
    """Checkpoint with memory that is exported as a file, and with an IPC handle of memory."""
    program = Program()
    handle = (ctypes.c_char * 64)()
    made = program.driver.call("cuIpcGetMemHandle", handle, program.address)
    first = [made, *program.park(), *program.back()]
    return {"IPC handle made; park, back": first, "works": program.works()}


def host_memory() -> object:
    """Park with pinned, mapped and registered memory of the host: contents, and that the GPU still reaches them."""
    program = Program()
    driver, size = program.driver, 2**20
    pinned, mapped = c_void_p(), c_void_p()
    driver.need("cuMemAllocHost_v2", byref(pinned), c_size_t(size))
    driver.need("cuMemHostAlloc", byref(mapped), c_size_t(size), 2)
    own = ctypes.create_string_buffer(size + 4096)
    registered = c_void_p((ctypes.addressof(own) + 4095) & ~4095)
    made = driver.call("cuMemHostRegister_v2", registered, c_size_t(size - 4096), 2)
    device = ctypes.c_uint64()
    driver.need("cuMemHostGetDevicePointer_v2", byref(device), mapped, 0)
    ctypes.memset(pinned, 5, size)
    park = program.park()
    while_parked = ctypes.string_at(pinned, 4)
    ctypes.memset(pinned, 6, size)
    back = program.back()
    driver.fill(device, size, 0x01020304)
    driver.need("cuCtxSynchronize")
    copied = driver.call("cuMemcpyHtoD_v2", program.address, pinned, c_size_t(size))
    return {
        "registered": made, "park": park, "back": back, "readable while parked": while_parked == b"\5" * 4,
        "GPU writes to mapped memory": ctypes.string_at(mapped, 4) == bytes((4, 3, 2, 1)),
        "copied": [copied, hex(driver.words(program.address, 1)[0])],
        "registered after": driver.call("cuMemHostUnregister", registered),
    }  # fmt: skip


def contexts() -> object:
    """Park with a second context, blocking streams, events and a pool."""
    program = Program()
    driver = program.driver
    second, stream, event, address = c_void_p(), c_void_p(), c_void_p(), ctypes.c_uint64()
    made = driver.call("cuCtxCreate_v2", byref(second), 0, driver.device)
    driver.need("cuStreamCreate", byref(stream), 0)
    driver.need("cuEventCreate", byref(event), 0)
    driver.need("cuMemAllocAsync", byref(address), c_size_t(2**20), stream)
    driver.need("cuEventRecord", event, stream)
    park, back = program.park(), program.back()
    asked = [driver.call("cuEventQuery", event), driver.call("cuMemFreeAsync", address, stream)]
    driver.use()
    return {"second context": made, "park": park, "back": back, "event, free": asked, "works": program.works(),
            "calls": program.steps.milliseconds, **process.holds()}  # fmt: skip


def nvml() -> object:
    """Park with NVML initialised in the process, and after its shutdown: what is open at each step."""
    program = Program()
    library = ctypes.CDLL("libnvidia-ml.so.1")
    device, info = c_void_p(), (ctypes.c_uint64 * 8)()

    def look() -> list[int]:
        handle = library.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
        return [handle, library.nvmlDeviceGetMemoryInfo(device, byref(info))]

    say(first=[library.nvmlInit_v2(), *look()], **process.holds())
    say(park=program.park(), **process.holds())
    say(back=program.back(), **process.holds())
    old = library.nvmlDeviceGetMemoryInfo(device, byref(info))
    say(after=[old, *look()], shutdown=library.nvmlShutdown(), **process.holds())
    say(park=program.park(), **process.holds())
    say(back=program.back(), **process.holds())
    return {"first again": [library.nvmlInit_v2(), *look()], "works": program.works()}


def in_flight() -> object:
    """Park five times while three threads wait in the driver for work of 0.3 s, which they began before the lock."""
    program = Program()
    driver, ended = program.driver, []
    streams, event = [c_void_p() for _ in range(3)], c_void_p()
    driver.need("cuEventCreate", byref(event), 1)  # the thread sleeps until it is ended
    for stream in streams:
        driver.need("cuStreamCreate", byref(stream), 1)
    driver.spin(0)
    waits = {
        "event": lambda: driver.call("cuEventSynchronize", event),
        "stream": lambda: driver.call("cuStreamSynchronize", streams[1]),
        "context": lambda: driver.call("cuCtxSynchronize"),
    }

    def wait(name: str) -> None:
        driver.use()
        code = waits[name]()
        ended.append((name, code, round(time.monotonic() - began, 3)))

    for _ in range(5):
        ended.clear()
        for stream in streams:
            driver.spin(0.3, stream)
        driver.need("cuEventRecord", event, streams[0])
        began = time.monotonic()
        threads = [threading.Thread(target=wait, args=(name,), daemon=True) for name in waits]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        report = parking.start(0.5).finish(early=False)
        for thread in threads:
            thread.join(5)
        say(waited=list(ended), **report)
    return program.works()


def host_limit() -> object:
    """Checkpoint 1 GiB while the process may have only 300 MiB more; then unlock, and whether all still works."""
    program = Program(2**30)
    size = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize"))
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(size.split()[1]) * 1024 + 300 * 2**20, unlimited[1]))
    park = program.park()
    say(park=park, **process.holds())
    resource.setrlimit(resource.RLIMIT_AS, unlimited)
    found: dict[str, object] = {"park": park}
    if park[2] == 2:
        found["back"] = program.back()
    else:
        found["unlock"] = [program.steps.unlock(), program.steps.state()]
    found["works"] = program.works()
    found["park again"] = [*program.park(), *program.back()]
    return {**found, "calls": program.steps.milliseconds}


def parked_child() -> None:
    """Park and wait."""
    program = Program(2**30)
    print(program.park(), flush=True)
    sys.stdin.readline()


def restored_child() -> None:
    """Park, come back and wait."""
    program = Program(2**28)
    print([*program.park(), *program.back()], flush=True)
    sys.stdin.readline()


def _killed(code: str) -> object:
    child = _other(code)
    assert child.stdout
    said = child.stdout.readline().strip()
    before = process.smi("gpu", "memory.used")
    child.send_signal(signal.SIGKILL)
    began = time.monotonic()
    child.wait(60)
    took = round(time.monotonic() - began, 3)
    time.sleep(1)
    program = Program()
    return {"said": said, "ended after, s": took, "memory before, after": [before, process.smi("gpu", "memory.used")],
            "a new program": program.works()}  # fmt: skip


def kill_parked() -> object:
    """Kill a process that is parked; whether another program works afterwards."""
    return _killed("parked_child()")


def kill_restored() -> object:
    """Kill a process that came back from a park: on some drivers this is said to hang the machine. Ask it last."""
    return _killed("restored_child()")


def by_parent() -> object:
    """Park another process of the same user, and see whether it comes back."""
    child = _other("program = Program()\nprint('up', flush=True)\nsys.stdin.readline()\nprint(program.works())")
    assert child.stdout
    child.stdout.readline()
    steps = parking.Steps(Driver(), child.pid)
    codes = [steps.state(), steps.lock(), steps.checkpoint(), steps.state()]
    held: dict[str, Any] = {**process.holds(child.pid), "memory": process.memory(child.pid)}
    codes += [steps.restore(), steps.unlock(), steps.state()]
    said = child.communicate("go\n")[0]
    return {"codes": codes, "parked": held, "child": said, "calls": steps.milliseconds, "own": process.holds()}


CASES: dict[str, Case] = {
    "order": order, "maps": maps, "busy": busy, "waiting": waiting, "host callback": host_callback,
    "capture": capture, "forks": forks, "host memory": host_memory, "contexts": contexts, "nvml": nvml,
    "in flight": in_flight,
    "by parent": by_parent, "shared memory": shared_memory, "denied": denied, "managed": managed,
    "host limit": host_limit,
    "kill parked": kill_parked,
}  # fmt: skip
ALONE: dict[str, Case] = {"node away": node_away, "full": full}
LAST: dict[str, Case] = {"kill restored": kill_restored}

if __name__ == "__main__":
    parking.prepare()
    ask({**CASES, **ALONE, **LAST}, apart=__spec__.name)
