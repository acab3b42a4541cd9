"""Detects a process that waits for itself: it, or a worker that waits for it, has the GPU open."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.parents import ancestors
from jupyter_gpu.kernel.cuda.guard import guard
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuState, View
from jupyter_gpu.model.workers import SELF, ChildProcess, Worker, worker

FOLLOWING: set[int] = set()
"""Pids of processes that this one started and ends as soon as their GPUs are given back: they wait for nothing."""


def own_holders(view: View) -> tuple[Worker, ...]:
    """List our own holders of GPUs that are being given back: this process, one that waits for it (the kernel of
    ``!jupyter gpu resize 1``), and processes that it started.

    The view may be older than a recent close, so its holders are checked again.
    """
    family = frozenset(pid for pid in ancestors(os.getpid()) if pid != 1)
    found: dict[int, Worker] = {}
    for item in view.gpus:
        for user in item.users if item.state is GpuState.DRAINING else ():
            if user.pid in found or user.pid in FOLLOWING or not user.pid:
                continue
            if user.pid == os.getpid():
                _close_nvml(view)
            if user.pid in family:
                known: Worker | None = Worker(user.pid, SELF)
            else:
                known = _started(user.pid, user.command)
            if known and has_open(user.pid, item.gpu):
                found[user.pid] = known
    return tuple(found.values())


def nvml_refusal() -> str:
    """Return why NVML keeps GPUs open in this process; "" if it does not, as far as is known."""
    return guard().nvml_refusal


def _close_nvml(view: View) -> None:
    """Have NVML close the GPUs that this process gives back, if nothing else here has them open."""
    mine = guard()
    mine.see(Hint.of(view))
    mine.restart_nvml()


def _started(pid: int, command: str) -> Worker | None:
    """Describe a process that this one started, directly or indirectly; None for any other.

    A process whose parent ended gets another parent, but keeps its session, which a kernel leads.
    """
    me = os.getpid()
    try:
        if me not in ancestors(pid) and not (os.getsid(0) == me and os.getsid(pid) == me):
            return None
        arguments = _arguments(pid)
        forked = arguments == _arguments(me)
        return worker(ChildProcess(pid, command, arguments, forked), sys.modules.keys())
    except OSError:  # it ended meanwhile
        return None


def _arguments(pid: int) -> tuple[str, ...]:
    text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return tuple(text.removesuffix("\0").split("\0"))


def has_open(pid: int, gpu: Gpu) -> bool:
    """Tell whether process ``pid`` has ``gpu`` open now; true if that is unknown."""
    try:
        entries = list(os.scandir(f"/proc/{pid}/fd"))
        node = None if gpu.device else os.stat(gpu.path)  # noqa: PTH116 - one way to look at both
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for entry in entries:
        try:
            found = os.stat(entry.path)  # noqa: PTH116 - these are no paths
        except OSError:
            continue  # closed meanwhile
        if gpu.device and stat.S_ISCHR(found.st_mode):
            if (os.major(found.st_rdev), os.minor(found.st_rdev)) == (gpu.device.major, gpu.device.minor):
                return True
        elif node is not None and os.path.samestat(found, node):
            return True
    return False
