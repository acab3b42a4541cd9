"""The surroundings of this server, and servers whose records lie elsewhere."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import FIRST_NAMESPACE, namespace
from jupyter_gpu.backends.local.records.record import MAX_BYTES, Record
from jupyter_gpu.common.rules import visible
from jupyter_gpu.model.view import Condition
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.processes import proc

from .rules.apart import Surroundings

_log = logging.getLogger(__name__)

DXG = Path("/dev/dxg")
"""The one device of all GPUs in WSL 2."""
SITE = "JUPYTER_GPU_SITE_DEVICES"
"""Environment variable with the site's limit, for programs of a server that has one."""
_UID = re.compile(r"[0-9a-f]{32}")
_OF_ONE_GPU = "nvidia[0-9]*"


def surroundings(path: Path, *, chosen: bool) -> Surroundings:
    """Return the surroundings as they are now."""
    contained = namespace() != FIRST_NAMESPACE and not DXG.exists()  # a distribution of WSL has a namespace of its own
    return Surroundings(
        path=os.path.realpath(path),
        chosen=chosen,
        mounts=read_text("/proc/self/mountinfo") or "",
        first=read_text("/proc/1/mountinfo") if namespace() == FIRST_NAMESPACE else None,
        contained=contained,
    )


def one_for_all() -> str:
    """Return the reason no single GPU here can be guarded, for people; empty if each has a device of its own."""
    if not DXG.exists() or any(DXG.parent.glob(_OF_ONE_GPU)):
        return ""
    return f"All GPUs here are one device, {DXG}, as in WSL 2: nothing can keep a program from one of them alone."


def site_limit(environ: Mapping[str, str], pods: Path) -> str | None:
    """Return the `CUDA_VISIBLE_DEVICES` that the site gave this server; None where it gave none.

    A server that was started in a notebook's terminal has inherited one that tells which GPUs that notebook's server
    had then. That is no limit: the two share out GPUs as any two servers do. What limits the outer one limits both.
    """
    outer = environ.get(MARK, "")
    return environ.get(SITE) if outer and _inside(outer, pods) else visible.chosen(environ)


def _inside(uid: str, pods: Path) -> bool:
    """Tell whether this process descends from that pod's server: anything else may have copied its environment."""
    started = proc.process_start_time(os.getpid())
    if not _UID.fullmatch(uid):
        return False
    try:
        with (pods / f"{uid}.json").open("rb") as file:
            server = Record.decode(file.read(MAX_BYTES)).server
    except (OSError, ValueError):
        return False
    return started is not None and (server.pid, server.start) in proc.ancestry(os.getpid(), started)[1:]


def elsewhere(processes: Iterable[proc.ProcessInfo], known: Collection[str]) -> bool:
    """Tell whether one of them belongs to a pod that is not ``known``: by its control group, or its mark."""
    return any((uid := pod_of(process.pid)) is not None and uid not in known for process in processes)


def pod_of(pid: int) -> str | None:
    """Return the uid of the pod that a process says it is of; None where it says none."""
    groups = re.findall(rf"/{cgroup.PREFIX}([0-9a-f]{{32}})\b", read_text(f"/proc/{pid}/cgroup") or "")
    marks = re.findall(rf"(?:^|\0){MARK}=([0-9a-f]{{32}})(?=\0|$)", read_text(f"/proc/{pid}/environ") or "")
    found: list[str] = [*marks, *groups]
    return found[-1] if found else None  # the innermost group; the mark of a process in one says nothing


def read_text(path: str) -> str | None:
    """Return the text of a file; None where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return None


def warn_of(conditions: Iterable[Condition]) -> None:
    """Log what an administrator must know before it does harm."""
    for condition in conditions:
        if condition.type in ("StateApart", "Contained"):
            _log.warning("%s", condition.message)
