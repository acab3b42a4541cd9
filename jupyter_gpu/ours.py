"""Whether a wait for GPUs to be closed is a wait for oneself."""

from __future__ import annotations

import os
import stat

from .discover import ancestors
from .model.gpu import Gpu
from .model.view import GpuState, View


def waits_for_itself(view: View) -> bool:
    """Whether this process, or one that waits for it such as the kernel of ``!jupyter gpu resize 1``, must close a GPU.

    The view may be older than a close of a moment ago, so what it says is looked up again.
    """
    family = frozenset(pid for pid in ancestors(os.getpid()) if pid != 1)
    return any(
        user.pid in family and has_open(user.pid, item.gpu)
        for item in view.gpus
        if item.state is GpuState.DRAINING
        for user in item.users
    )


def has_open(pid: int, gpu: Gpu) -> bool:
    """Whether process ``pid`` has ``gpu`` open now; true if that cannot be looked up."""
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
