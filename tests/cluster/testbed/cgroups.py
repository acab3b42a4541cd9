"""Control groups of a node: one folder in every hierarchy of this machine (v2, hybrid or v1)."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.testbed.commands import SECONDS, ClusterError, until

INHERITED = ("cpuset.cpus", "cpuset.mems")
"""Files that a new v1 group of the cpuset controller needs before it takes a process."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of control groups."""

    root: Path
    unified: bool


def hierarchies() -> tuple[Hierarchy, ...]:
    """All of this machine, v2 first where there is one. Raises ClusterError where there is none."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        kind = kind.split()[0]
        if kind in ("cgroup", "cgroup2"):
            root = Path(fields.split()[4])
            found[root] = Hierarchy(root, kind == "cgroup2")
    if not found:
        raise ClusterError("This machine has no control groups mounted, so no containers can run here.")
    return tuple(sorted(found.values(), key=lambda hierarchy: (not hierarchy.unified, hierarchy.root)))


def make(name: str) -> Path:
    """Make the group in every hierarchy; the result is the one that daemons are started in, below it."""
    trees = hierarchies()
    for hierarchy in trees:
        group = hierarchy.root / name
        if len(trees) == 1 and hierarchy.unified:  # beside v1, controllers are there
            _pass_on_controllers(hierarchy.root)
        group.mkdir(exist_ok=True)
        for file in INHERITED:
            if not hierarchy.unified and (group / file).exists() and not (group / file).read_text().strip():
                (group / file).write_text((hierarchy.root / file).read_text())
    return daemons(name, make_it=True)


def daemons(name: str, *, make_it: bool = False) -> Path:
    """The group in which the node's own processes live: a leaf, for v2 has no processes in inner groups."""
    group = hierarchies()[0].root / name / "daemons"
    if make_it:
        group.mkdir(exist_ok=True)
        for file in INHERITED:
            if (group / file).exists() and not hierarchies()[0].unified and not (group / file).read_text().strip():
                (group / file).write_text((group.parent / file).read_text())
    return group


def of_prefix(prefix: str) -> tuple[str, ...]:
    """Names of the top groups that begin so, in any hierarchy."""
    return tuple(
        sorted({path.name for tree in hierarchies() for path in tree.root.glob(f"{prefix}*") if path.is_dir()})
    )


def processes(name: str) -> set[int]:
    """Pids of all that is in the group or below it, in any hierarchy."""
    found: set[int] = set()
    for group in _groups(name):
        with suppress(OSError, ValueError):
            found.update(map(int, (group / "cgroup.procs").read_text().split()))
    return found - {0}


def remove(name: str) -> None:
    """Kill everything in the group and below, and remove it. Raises ClusterError where something will not die."""

    def empty() -> bool:
        left = processes(name)
        _kill(name, left)
        return not left

    until(empty, SECONDS, f"the processes in the control group {name} to end", every=0.02)
    end = time.monotonic() + SECONDS
    while left := [group for group in _groups(name) if not _removed(group)]:
        if time.monotonic() > end:
            raise ClusterError(f"The control group {left[0]} cannot be removed; something still uses it.")
        time.sleep(0.02)


def _pass_on_controllers(root: Path) -> None:
    """Let groups below the root of v2 have every controller: systemd passes on only those that it uses."""
    for controller in (root / "cgroup.controllers").read_text().split():
        with suppress(OSError):  # one that cannot be had is missed by the kubelet, which says so
            (root / "cgroup.subtree_control").write_text(f"+{controller}")


def _groups(name: str) -> Iterator[Path]:
    """Every folder of the group in every hierarchy, the innermost first."""
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy.root / name, topdown=False):
            yield Path(folder)


def _kill(name: str, pids: set[int]) -> None:
    for hierarchy in hierarchies():
        with suppress(OSError):
            (hierarchy.root / name / "cgroup.kill").write_text("1")
    for group in _groups(name):
        with suppress(OSError):
            if (group / "freezer.state").exists():
                (group / "freezer.state").write_text("THAWED")  # a frozen process of v1 does not even die
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
