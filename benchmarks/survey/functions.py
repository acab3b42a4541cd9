"""Every function of the driver, and calls of the CUDA runtime: what they do while running, locked and parked.

A process is parked once and makes many calls meanwhile, each in a thread of its own that was there before. One that
blocks is left behind; one that ends the process is noted, and a new process makes the rest.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from . import parking, signatures
from .answers import Case, ask, say
from .arguments import Maker
from .driver import Driver

_WATCH = {"running": 2.0, "locked": 0.08, "parked": 0.08}
"""Seconds after which a call counts as blocked."""
_BATCH, _AT_ONCE = 40, 3
"""Calls of a process; processes at once."""
_DEADLINE = 45.0
"""Seconds for a process."""
_ALONE = (
    "cuCtxCreate", "cuCtxDestroy", "cuCtxDetach", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset",
    "cuMemAllocManaged", "cuCoredump", "cuProfiler",
)  # fmt: skip
"""Beginnings of functions that may change what later calls find: each has a process of its own."""
_NOT_CALLED = ("cuCheckpoint", "cuVDPAU", "cuGL", "cuGraphicsGL", "cuGraphicsVDPAU", "cuEGL", "cuGraphicsEGL")
"""Beginnings of functions that are parking itself, or need a display."""
_READING = ("Get", "Is", "Query", "Can", "Has", "Version", "Flags", "Supported")
Call = Callable[[], int]


def version() -> int:
    """Return the driver's version of CUDA."""
    found = c_int()
    Driver().need("cuDriverGetVersion", byref(found))
    return found.value


def _names() -> list[str]:
    """Return the functions to call; those that only read come first, so that nothing that blocks is before them."""
    every = [name for name in signatures.newest(version()) if not name.startswith(_NOT_CALLED)]
    return sorted(every, key=lambda name: (not any(word in name for word in _READING), name))


def runtime() -> ctypes.CDLL | None:
    """Return the CUDA runtime, if there is one."""
    names = ["libcudart.so.13", "libcudart.so"]
    found = importlib.util.find_spec("nvidia")
    for place in (found.submodule_search_locations or ()) if found else ():
        names += [str(path) for path in sorted(Path(place).glob("*/lib/libcudart.so*"))]
    names += [str(path) for path in sorted(Path("/usr/local").glob("cuda*/lib64/libcudart.so*"))]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


_RUNTIME = (
    "cudaGetDevice", "cudaGetDeviceCount", "cudaSetDevice", "cudaGetLastError", "cudaPeekAtLastError",
    "cudaDeviceGetAttribute", "cudaDriverGetVersion", "cudaRuntimeGetVersion", "cudaGetDeviceProperties",
    "cudaPointerGetAttributes", "cudaDeviceGetPCIBusId", "cudaGetDeviceFlags", "cudaDeviceGetStreamPriorityRange",
    "cudaStreamIsCapturing", "cudaStreamGetFlags", "cudaStreamGetPriority", "cudaStreamGetId",
    "cudaThreadExchangeStreamCaptureMode", "cudaDeviceCanAccessPeer",
    "cudaDeviceGetDefaultMemPool", "cudaDeviceGetMemPool", "cudaEventElapsedTime",
    "cudaDeviceGetLimit", "cudaMemGetInfo", "cudaHostGetFlags", "cudaHostGetDevicePointer",
    "cudaMemcpyAsync", "cudaMemcpy", "cudaMemsetAsync", "cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaFreeAsync",
    "cudaMallocHost", "cudaFreeHost", "cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventDestroy",
    "cudaStreamCreateWithFlags", "cudaStreamDestroy", "cudaStreamWaitEvent", "cudaDeviceSynchronize",
    "cudaStreamQuery", "cudaEventQuery", "cudaStreamSynchronize", "cudaEventSynchronize",
)  # fmt: skip


def _runtime_arguments(library: ctypes.CDLL) -> Mapping[str, list[Any]]:
    """Return arguments of the runtime's calls, made now."""
    kept = ctypes.create_string_buffer(8192)
    out = ctypes.addressof(kept)
    _KEPT.append(kept)

    def new(name: str, *arguments: Any) -> c_void_p:
        found = c_void_p()
        getattr(library, name)(byref(found), *arguments)
        return found

    library.cudaSetDevice(0)
    address = new("cudaMalloc", c_size_t(1 << 20))
    host = new("cudaMallocHost", c_size_t(1 << 20))
    stream, spare = new("cudaStreamCreateWithFlags", c_uint(1)), new("cudaStreamCreateWithFlags", c_uint(1))
    event, other, third = (new("cudaEventCreateWithFlags", c_uint(0)) for _ in range(3))
    for one in (event, other, third):
        library.cudaEventRecord(one, stream)
    from_pool = new("cudaMallocAsync", c_size_t(1 << 20), stream)
    library.cudaDeviceSynchronize()
    here, size, zero = c_uint64(out), c_size_t(1024), c_int(0)
    return {
        "cudaGetDevice": [here], "cudaGetDeviceCount": [here], "cudaSetDevice": [zero], "cudaGetLastError": [],
        "cudaPeekAtLastError": [], "cudaDeviceGetAttribute": [here, c_int(16), zero], "cudaDriverGetVersion": [here],
        "cudaRuntimeGetVersion": [here], "cudaGetDeviceProperties": [here, zero],
        "cudaPointerGetAttributes": [here, address], "cudaDeviceGetPCIBusId": [here, c_int(64), zero],
        "cudaGetDeviceFlags": [here], "cudaDeviceGetStreamPriorityRange": [here, here],
        "cudaStreamIsCapturing": [stream, here], "cudaStreamGetFlags": [stream, here],
        "cudaStreamGetPriority": [stream, here], "cudaStreamGetId": [stream, here],
        "cudaThreadExchangeStreamCaptureMode": [here],
        "cudaDeviceCanAccessPeer": [here, zero, zero], "cudaDeviceGetDefaultMemPool": [here, zero],
        "cudaDeviceGetMemPool": [here, zero], "cudaEventElapsedTime": [here, event, other],
        "cudaDeviceGetLimit": [here, zero], "cudaMemGetInfo": [here, here],
        "cudaHostGetFlags": [here, host], "cudaHostGetDevicePointer": [here, host, c_uint(0)],
        "cudaMemcpyAsync": [host, address, size, c_int(2), stream], "cudaMemcpy": [host, address, size, c_int(2)],
        "cudaMemsetAsync": [address, zero, size, stream], "cudaMalloc": [here, size],
        "cudaFree": [new("cudaMalloc", c_size_t(1 << 20))], "cudaMallocAsync": [here, size, stream],
        "cudaFreeAsync": [from_pool, stream], "cudaMallocHost": [here, size],
        "cudaFreeHost": [new("cudaMallocHost", c_size_t(4096))], "cudaEventCreateWithFlags": [here, c_uint(0)],
        "cudaEventRecord": [event, stream], "cudaEventDestroy": [third],
        "cudaStreamCreateWithFlags": [here, c_uint(1)], "cudaStreamDestroy": [spare],
        "cudaStreamWaitEvent": [stream, event, c_uint(0)], "cudaDeviceSynchronize": [], "cudaStreamQuery": [stream],
        "cudaEventQuery": [event], "cudaStreamSynchronize": [stream], "cudaEventSynchronize": [event],
    }  # fmt: skip


_KEPT: list[Any] = []


def _calls(driver: Driver, names: Sequence[str]) -> Iterator[tuple[str, Call]]:
    """Make the calls ready: the driver's functions and the runtime's, by name."""
    known = signatures.newest(version())
    maker = Maker(driver)
    _KEPT.append(maker)
    library = runtime() if any(name.startswith("cuda") for name in names) else None
    ready = _runtime_arguments(library) if library else {}
    for name in names:
        say(calls=name)  # what prepares a call may end the process as well
        if name in ready:
            yield name, functools.partial(getattr(library, name), *ready[name])
        elif name in known:
            symbol, parameters = known[name]
            yield name, functools.partial(driver.call, symbol, *maker.arguments(symbol, parameters))


class _Caller:
    """A thread that waits for its turn, and makes one call."""

    def __init__(self, driver: Driver, name: str, call: Call) -> None:
        self.name = name
        self._driver, self._call, self._go = driver, call, threading.Event()
        self.code: int | str | None = None
        self.ended = 0.0
        self.began = 0.0
        self._ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self._ready.wait(5)

    def _run(self) -> None:
        self._driver.use()
        self._ready.set()
        self._go.wait()
        self.began = time.monotonic()
        try:
            self.code = self._call()
        except Exception as error:
            self.code = repr(error)
        self.ended = time.monotonic()

    def go(self, seconds: float) -> bool:
        """Make the call; tell whether it has returned after so many seconds at most."""
        self._go.set()
        self.thread.join(seconds)
        return not self.thread.is_alive()


def child(state: str, names: Sequence[str]) -> None:
    """Make calls in a state of this process; print what each does, as soon as it is known."""
    driver = Driver()
    driver.start()
    callers = []
    for name, call in _calls(driver, names):
        callers.append(_Caller(driver, name, call))
    driver.call("cuCtxSynchronize")
    say(calls="")
    park = None
    if state != "running":
        park = parking.start(only_lock=state == "locked")
        reached = park.wait(parking.LOCKED if state == "locked" else parking.PARKED, 20)
        if not reached:
            say(failed=park.report())
            os._exit(3)
    blocked = []
    for caller in callers:
        say(calls=caller.name)
        if caller.go(_WATCH[state]):
            say(name=caller.name, code=caller.code, ms=round(1000 * (caller.ended - caller.began), 2))
        else:
            say(name=caller.name, blocks=True)
            blocked.append(caller)
    if park:
        back = time.monotonic()
        steps = park.finish(30)
        say(steps=steps)
        end = time.monotonic() + 3
        for caller in blocked:
            caller.thread.join(max(0.0, end - time.monotonic()))
            early = caller.ended and caller.ended < back
            say(later=caller.name, code=caller.code, early=bool(early), ended=bool(caller.ended))
    os._exit(0)


class _Answers:
    """The known answers of each function in one state."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def batch(self, state: str, names: Sequence[str]) -> None:
        """Call functions, in as many processes as it takes."""
        left = list(names)
        while left:
            now, ended = self._process(state, left)
            done = [name for name in left if name in self.found]
            if ended and now:
                with self._lock:
                    self.found.setdefault(now, {}).setdefault("ended", ended)
                done.append(now)
            if not done and len(left) > 1:  # something that is made for one of the calls is in the way of the park
                self.batch(state, left[: len(left) // 2])
                self.batch(state, left[len(left) // 2 :])
                return
            if not done:
                with self._lock:
                    self.found[left[0]] = {"ended": f"{ended}, before it was called"}
                return
            left = [name for name in left if name not in done]

    def _process(self, state: str, names: Sequence[str]) -> tuple[str, str]:
        """Return the call that ended the process, if one did, and how."""
        command = [sys.executable, "-m", "benchmarks.survey.functions", "child", state, *names]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        timer = threading.Timer(_DEADLINE, process.kill)
        timer.start()
        now, extra = "", []
        assert process.stdout
        for line in process.stdout:
            answer = json.loads(line)
            answer.pop("at", None)
            if "calls" in answer:
                now = answer["calls"]
            elif name := answer.pop("name", answer.pop("later", None)):
                with self._lock:
                    one = self.found.setdefault(name, {})
                    one.update({f"later {key}" if "blocks" in one else key: value for key, value in answer.items()})
                now = ""
            else:
                extra.append(answer)
        status = process.wait()
        timer.cancel()
        codes = [[step.get("code") for step in one["steps"].values() if isinstance(step, dict)]
                 for one in extra if "steps" in one]  # fmt: skip
        say(
            state=state,
            process=len(names),
            status=status,
            steps=codes,
            failed=[one for one in extra if "failed" in one],
        )
        return now, f"status {status}" if status else ""


def _batches(names: Sequence[str]) -> list[list[str]]:
    alone = [name for name in names if name.startswith(_ALONE)]
    rest = [name for name in names if not name.startswith(_ALONE)]
    return [rest[at : at + _BATCH] for at in range(0, len(rest), _BATCH)] + [[name] for name in alone]


def _ask(state: str, label: str, names: Sequence[str], batches: Sequence[Sequence[str]]) -> Mapping[str, object]:
    answers = _Answers()
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda batch: answers.batch(state, batch), batches):
            say(state=state, known=len(answers.found))
    found = answers.found
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_summary(found.get(name)), []).append(name)
    _KNOWN.mkdir(exist_ok=True)
    (_KNOWN / f"{label}.json").write_text(json.dumps(found))
    slow = {name: one["ms"] for name, one in found.items() if one.get("ms", 0) > 2}
    return {**groups, "ms, where more than 2": slow}


_KNOWN = Path(tempfile.gettempdir()) / "survey-functions"


def _summary(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "not known"
    if "ended" in one:
        return f"ends the process, {one['ended']}" + (" (after it blocked)" if "blocks" in one else "")
    if "blocks" not in one:
        return f"returns {one.get('code')}"
    late = "before the return" if one.get("later early") else "then"
    return f"blocks, {late} {one.get('later code')}" if one.get("later ended") else "blocks, does not return"


def _state(state: str) -> Case:
    return lambda: _ask(state, state, _names(), _batches(_names()))


def _runtime_state(state: str) -> Case:
    def case() -> object:
        if runtime() is None:
            return "no CUDA runtime"
        return _ask(state, f"runtime-{state}", _RUNTIME, [_RUNTIME[at : at + 24] for at in range(0, len(_RUNTIME), 24)])

    return case


def alone() -> object:
    """Call what reads and blocked while parked, each in a park of its own: nothing else can have blocked it."""
    try:
        found = json.loads((_KNOWN / "parked.json").read_text())
    except OSError:
        return "not known which blocked"
    names = [name for name, one in found.items() if "blocks" in one and any(word in name for word in _READING)]
    return _ask("parked", "alone", names, [[name] for name in names])


STATES = ("running", "locked", "parked")
CASES: dict[str, Case] = {
    **{state: _state(state) for state in STATES},
    **{f"runtime, {state}": _runtime_state(state) for state in STATES},
    "alone": alone,
}

if __name__ == "__main__":
    parking.prepare()
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], sys.argv[3:])
    else:
        ask(CASES)
