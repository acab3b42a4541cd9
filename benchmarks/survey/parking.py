"""Parking of the calling process with the driver's checkpoint: step by step, or whole from a native thread."""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .driver import Driver

STEPS = ("lock", "checkpoint", "restore", "unlock")
LOCKED, PARKED = 1, 2
"""Phases of a native park: how many steps have ended."""


class Park(ctypes.Structure):
    """One run of the native thread: twin of `struct park` in parker.c."""

    _fields_ = (
        ("phase", ctypes.c_int32),
        ("go_on", ctypes.c_int32),
        ("only_lock", ctypes.c_int32),
        ("timeout", ctypes.c_uint32),
        ("pause", ctypes.c_double),
        ("code", ctypes.c_int32 * 4),
        ("began", ctypes.c_double * 4),
        ("ended", ctypes.c_double * 4),
        ("done", ctypes.c_int32),
    )

    def wait(self, phase: int, seconds: float = 60.0) -> bool:
        """Wait until so many steps have ended; False if the thread ended before, or did not get there in time."""
        end = time.monotonic() + seconds
        while self.phase < phase and not self.done and time.monotonic() < end:
            time.sleep(0.0005)
        return bool(self.phase >= phase)

    def finish(self, seconds: float = 120.0, *, early: bool = True) -> dict[str, Any]:
        """End the pause if ``early``, wait for the last step, and return results and milliseconds of all steps."""
        self.go_on = int(early)
        end = time.monotonic() + seconds
        while not self.done and time.monotonic() < end:
            time.sleep(0.0005)
        return self.report()

    def report(self) -> dict[str, Any]:
        """Return results and milliseconds of the steps that were called, and whether the thread has ended."""
        steps = {
            name: {"code": self.code[at], "ms": round(1000 * (self.ended[at] - self.began[at]), 2)}
            for at, name in enumerate(STEPS)
            if self.code[at] != -1
        }
        return {**steps, "ended": bool(self.done)}


@functools.cache
def _parker() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="parker") as folder:
        library = Path(folder) / "parker.so"
        source = Path(__file__).with_name("parker.c")
        subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", source, "-o", library, "-pthread", "-ldl"], check=True)
        return ctypes.CDLL(str(library))


def start(pause: float = 600.0, *, only_lock: bool = False, timeout: int = 10_000) -> Park:
    """Start a native thread that parks this process for ``pause`` seconds; `timeout` of the lock is in ms."""
    park = Park(only_lock=only_lock, timeout=timeout, pause=pause)
    park.code[:] = [-1] * 4
    _parker().park_start(ctypes.byref(park))
    return park


def prepare() -> None:
    """Compile the native thread's code now rather than at the first park."""
    _parker()


def once(pause: float = 0.0) -> dict[str, Any]:
    """Park and return once from a native thread; return results and milliseconds of all steps."""
    park = start(pause)
    park.wait(PARKED)
    if pause:
        time.sleep(pause)
    return park.finish()


class Steps:
    """The driver's calls for a process, our own or another's, made by the calling thread; each returns its result."""

    def __init__(self, driver: Driver, pid: int = 0) -> None:
        self._driver, self._pid = driver, pid or os.getpid()
        self.milliseconds: list[tuple[str, int, float]] = []
        """Calls in their order: name, result, duration."""

    def _call(self, step: str, arguments: Any) -> int:
        began = time.monotonic()
        code = self._driver.call(f"cuCheckpointProcess{step.capitalize()}", self._pid, ctypes.byref(arguments))
        self.milliseconds.append((step, code, round(1000 * (time.monotonic() - began), 2)))
        return code

    def lock(self, timeout: int = 10_000) -> int:
        """`timeout` in ms; 0: none."""
        return self._call("lock", (ctypes.c_uint64 * 16)(timeout))

    def checkpoint(self) -> int:
        """Move the GPU's memory to the host, and close the GPU."""
        return self._call("checkpoint", (ctypes.c_uint64 * 16)())

    def restore(self, pairs: Sequence[tuple[bytes, bytes]] = ()) -> int:
        """Open the GPU and move the memory back. ``pairs``: UUIDs of old and new GPUs; none: the same ones."""
        arguments = (ctypes.c_uint64 * 16)()
        raw = b"".join(old + new for old, new in pairs)
        held = ctypes.create_string_buffer(raw, len(raw) or 1)
        if pairs:
            arguments[0], arguments[1] = ctypes.addressof(held), len(pairs)
        return self._call("restore", arguments)

    def unlock(self) -> int:
        """Let calls through again."""
        return self._call("unlock", (ctypes.c_uint64 * 16)())

    def state(self) -> int:
        """Return 0 running, 1 locked, 2 checkpointed, 3 failed; a negative result if the driver reports none."""
        found = ctypes.c_int(-1)
        code = self._driver.call("cuCheckpointProcessGetState", self._pid, ctypes.byref(found))
        return -code if code else found.value

    def restore_thread(self) -> int:
        """Return the thread that restores; a negative result if the driver reports none."""
        found = ctypes.c_int(-1)
        code = self._driver.call("cuCheckpointProcessGetRestoreThreadId", self._pid, ctypes.byref(found))
        return -code if code else found.value
