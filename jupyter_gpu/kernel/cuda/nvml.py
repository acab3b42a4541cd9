"""NVML in a process whose GPUs change: for as long as it is initialised, it keeps the GPUs of its start open, and
counts those.

`torch.cuda.device_count()` initialises it, as does `is_available()`, and nothing shuts it down. So that is done here
when the GPUs change: as often as it was initialised, until NVML says that it is not. Then it is initialised as often
again. Where CUDA has started, the process keeps its GPUs anyway, and NVML is left alone.

Two findings (docs/designs/real-gpu.md) limit it further:

- A thread that is inside NVML when it is shut down never returns, so no thread may be in it. This holds the GIL
  meanwhile, and does nothing if another thread runs code that is not known to be elsewhere.
- A handle of a device is a place in NVML's table, which may be another GPU's afterwards, so nothing is done if the
  program keeps a handle of `pynvml`. Other handles are valid again as soon as the devices have been asked for.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from .devices import cuda_nodes, mapped_devices, open_files

STARTED = "CUDA has started"
_LIBRARY = "libnvidia-ml.so.1"
_UNINITIALIZED = 1
_MOST = 10_000_000
"""Initialisations that are counted: a program that asks for the number of GPUs in a loop makes thousands."""
_TURN = 0.1
"""Seconds for which no other thread runs. A thread that computes makes this process wait so long."""
_ELSEWHERE = frozenset({
    *("asyncio", "concurrent", "http", "queue", "selectors", "socket", "ssl", "subprocess", "threading"),
    *("IPython", "debugpy", "ipykernel", "jupyter_gpu", "tornado", "tqdm", "zmq"),
})  # fmt: skip
"""Packages whose code does not call NVML: a thread whose innermost Python code is theirs waits for something else."""


class Nvml:
    """NVML in this process. ``find``: returns the library if it is loaded."""

    def __init__(self, find: Callable[[], Any] | None = None) -> None:
        self._find = find or _loaded
        self._library: Any = None
        self._owed = 0
        """Initialisations that were undone and not made again."""

    @property
    def loaded(self) -> bool:
        """Whether this process has loaded NVML."""
        self._library = self._library or self._find()
        return self._library is not None

    def restart(self, *, start: bool) -> str:
        """Shut NVML down; with ``start``, initialise it as often again. Return why that was not possible, or ""."""
        if not self.loaded:
            return ""
        if why := self._hindrance():  # before anything waits for a thread that computes
            return why
        with _alone():
            if why := threads_elsewhere():
                return why
            # Without any Python code between the calls: no other thread runs meanwhile.
            done = list(islice(iter(self._library.nvmlShutdown, _UNINITIALIZED), _MOST))
            self._owed += done.count(0)
            if start and self._owed:
                self._start()
        return ""

    def _start(self) -> None:
        results = [self._library.nvmlInit_v2() for _ in range(self._owed)]
        self._owed = sum(result != 0 for result in results)
        self._ask_for_devices()

    def _ask_for_devices(self) -> None:
        """Make handles valid that were given out before."""
        import ctypes

        count, handle = ctypes.c_uint(0), ctypes.c_void_p()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0:
            for index in range(count.value):
                self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))

    def _hindrance(self) -> str:
        if cuda_nodes(open_files(), mapped_devices()):
            return STARTED
        return threads_elsewhere() or ("the program keeps handles of devices" if keeps_handles() else "")


def _loaded() -> Any:
    """Return NVML, for calls that hold the GIL; None if this process has not loaded it."""
    import ctypes

    try:
        return ctypes.PyDLL(_LIBRARY, os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def keeps_handles() -> bool:
    """Tell whether an object of this process is a handle of `pynvml`."""
    kind = getattr(sys.modules.get("pynvml"), "c_nvmlDevice_t", None)
    if kind is None or not _exists(kind):
        return False
    gc.collect()  # it may be a part of a cycle that is no longer used
    return _exists(kind)


def _exists(kind: type) -> bool:
    return any(type(one) is kind for one in gc.get_objects())


def threads_elsewhere(frames: dict[int, Any] | None = None) -> str:
    """Return "" if no other Python thread can be inside NVML, else why that is not known."""
    import threading

    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "threads of this Python run at the same time"
    for thread, frame in (sys._current_frames() if frames is None else frames).items():  # noqa: SLF001 - there is no other way
        module = str(frame.f_globals.get("__name__", ""))
        if thread != threading.get_ident() and module.partition(".")[0] not in _ELSEWHERE:
            return f"a thread runs code of {module}"
    return ""


@contextmanager
def _alone() -> Iterator[None]:
    """Let no other Python thread run inside the block, if it takes less than `_TURN` seconds."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        time.sleep(2 * interval)  # threads that wait for their turn by the old interval get it here
        yield
    finally:
        sys.setswitchinterval(interval)
