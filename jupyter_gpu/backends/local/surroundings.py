"""Where this server runs, and servers whose records lie elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from jupyter_gpu_node import cgroup, proc
from jupyter_gpu_node.enforcement import MARK

from .apart import Surroundings
from .processes import FIRST_NAMESPACE, namespace

DXG = Path("/dev/dxg")
"""The one device of all GPUs in WSL 2."""


def surroundings(path: Path, *, chosen: bool) -> Surroundings:
    """As they are now."""
    contained = namespace() != FIRST_NAMESPACE and not DXG.exists()  # a distribution of WSL has a namespace of its own
    return Surroundings(
        path=os.path.realpath(path),
        chosen=chosen,
        mounts=_text("/proc/self/mountinfo") or "",
        first=_text("/proc/1/mountinfo") if namespace() == FIRST_NAMESPACE else None,
        contained=contained,
    )


def elsewhere(processes: Iterable[proc.Process], known: Collection[str]) -> bool:
    """Whether one of them belongs to a pod that is not ``known``: by its control group, or its mark."""
    return any((uid := pod_of(process.pid)) is not None and uid not in known for process in processes)


def pod_of(pid: int) -> str | None:
    """Uid of the pod that a process says it is of; None where it says none."""
    groups = re.findall(rf"/{cgroup.PREFIX}([0-9a-f]{{32}})\b", _text(f"/proc/{pid}/cgroup") or "")
    marks = re.findall(rf"(?:^|\0){MARK}=([0-9a-f]{{32}})(?=\0|$)", _text(f"/proc/{pid}/environ") or "")
    found: list[str] = [*marks, *groups]
    return found[-1] if found else None  # the innermost group; the mark of a process in one says nothing


def _text(path: str) -> str | None:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return None
