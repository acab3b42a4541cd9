"""A check for waits for oneself: for GPUs that this process has open, or workers that wait for it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from jupyter_gpu.common.parents import ancestors
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.view import GpuState, View
from jupyter_gpu.model.workers import SELF, StartedProcess, Worker, worker


def own_holders(view: View) -> tuple[Worker, ...]:
    """List our own holders of GPUs that are given back: this process, one that waits for it such as the kernel of
    ``!jupyter gpu resize 1``, and what this process started.

    The view may be older than a close of a moment ago, so what it says is looked up again.
    """
    family = frozenset(pid for pid in ancestors(os.getpid()) if pid != 1)
    found: dict[int, Worker] = {}
    for item in view.gpus:
        for user in item.users if item.state is GpuState.DRAINING else ():
            if user.pid in found or not user.pid:
                continue
            if user.pid in family:
                known: Worker | None = Worker(user.pid, SELF)
            else:
                known = _started(user.pid, user.command)
            if known and has_open(user.pid, item.gpu):
                found[user.pid] = known
    return tuple(found.values())


def _started(pid: int, command: str) -> Worker | None:
    """Describe a process that this one started, or that one of those started; None for any other.

    A process whose parent ended has another one; where this one leads its session, as a kernel does, that still tells.
    """
    me = os.getpid()
    try:
        if me not in ancestors(pid) and not (os.getsid(0) == me and os.getsid(pid) == me):
            return None
        arguments = _arguments(pid)
        forked = arguments == _arguments(me)
        return worker(StartedProcess(pid, command, arguments, forked), sys.modules.keys())
    except OSError:  # it ended meanwhile
        return None


def _arguments(pid: int) -> tuple[str, ...]:
    text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return tuple(text.removesuffix("\0").split("\0"))


def has_open(pid: int, gpu: Gpu) -> bool:
    """Tell whether process ``pid`` has ``gpu`` open now; true if that cannot be looked up."""
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
