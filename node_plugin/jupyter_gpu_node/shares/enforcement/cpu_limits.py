"""Reads what the control groups of processes count of their CPU limits, in version 1 and 2. It blocks: for a thread."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.shares.rules.violations.throttling import Groups, Throttled, parse, period_by, period_of


def read(pids: Iterable[int]) -> Groups:
    """Return the counters of all groups with a limit that these processes are in; what cannot be read is left out."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return {}
    found: dict[str, Throttled] = {}
    trees = [("cpu", cgroup.controller(mounts, "cpu")), ("", cgroup.parse_mounts(mounts).unified)]
    for pid in set(pids):
        try:
            groups = cgroup.membership(pid)
        except OSError:  # it has ended
            continue
        for name, tree in trees:
            if tree is not None and name in groups:
                climb(tree, groups[name], found)
    return found


def climb(tree: cgroup.Hierarchy, group: str, found: dict[str, Throttled]) -> None:
    """Read a group and those around it: a pod has a limit, and its containers have others."""
    try:
        folder, top = tree.directory(group), Path(tree.mount)
    except ValueError:  # hidden from this process
        return
    while folder != top and str(folder) not in found:
        if one := _one(folder):
            found[str(folder)] = one
        folder = folder.parent


def _one(folder: Path) -> Throttled | None:
    try:
        if (limit := folder / "cpu.max").exists():
            period = period_of(limit.read_text())
        else:
            period = period_by((folder / "cpu.cfs_quota_us").read_text(), (folder / "cpu.cfs_period_us").read_text())
        return parse((folder / "cpu.stat").read_text(), period) if period else None
    except (OSError, UnicodeError):
        return None
