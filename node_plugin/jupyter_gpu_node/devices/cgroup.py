"""Control groups: where this process is, and one child group for the pod. Only this module writes their files.

Three layouts exist (https://docs.kernel.org/admin-guide/cgroup-v2.html): *v2*, one hierarchy; *hybrid*, v1
controllers with a v2 hierarchy beside them; *v1* alone. In the first two, device rules are a BPF program on the v2
group; in the last, files of the ``devices`` controller.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

PREFIX = "jupyter-gpu-"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_OCTAL = re.compile(r"\\([0-7]{3})")


class Layout(StrEnum):
    """The layout of a machine's control groups."""

    V2 = "v2"
    HYBRID = "hybrid"
    V1 = "v1"
    NONE = "none"


class Hierarchy(NamedTuple):
    """A mounted tree of control groups."""

    mount: PurePosixPath
    root: PurePosixPath
    """The group that the mount shows at its top: not ``/`` in some containers."""

    def directory(self, group: str) -> Path:
        """Return the path of ``group``, as in ``/proc/<pid>/cgroup``; `ValueError` if this mount hides it."""
        path = PurePosixPath(group)
        if ".." in path.parts or not path.is_relative_to(self.root):
            raise ValueError(f"The control group {group} is outside of what {self.mount} shows ({self.root}).")
        return Path(self.mount / path.relative_to(self.root))


class Mounts(NamedTuple):
    """The hierarchies that device rules can use."""

    unified: Hierarchy | None = None
    devices: Hierarchy | None = None
    legacy: bool = False
    """Whether any v1 controller is mounted."""

    @property
    def layout(self) -> Layout:
        """The layout that these mounts form."""
        if self.unified:
            return Layout.HYBRID if self.legacy else Layout.V2
        return Layout.V1 if self.legacy else Layout.NONE


def parse_mounts(text: str) -> Mounts:
    """Parse ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)); of several mounts of one hierarchy the last counts."""
    unified = devices = None
    legacy = False
    for line in text.splitlines():
        fields, separator, rest = line.partition(" - ")
        before, after = fields.split(" "), rest.split(" ")
        if not separator or len(before) < 6 or len(after) < 3:
            continue
        hierarchy = Hierarchy(PurePosixPath(_unescape(before[4])), PurePosixPath(_unescape(before[3])))
        if after[0] == "cgroup2":
            unified = hierarchy
        elif after[0] == "cgroup":
            legacy = True
            if "devices" in after[2].split(","):
                devices = hierarchy
    return Mounts(unified, devices, legacy)


def controller(text: str, name: str) -> Hierarchy | None:
    """Find the v1 tree of a controller in ``/proc/self/mountinfo``; of several mounts the last counts."""
    found = None
    for line in text.splitlines():
        fields, separator, rest = line.partition(" - ")
        before, after = fields.split(" "), rest.split(" ")
        if separator and len(before) >= 6 and len(after) >= 3 and after[0] == "cgroup" and name in after[2].split(","):
            found = Hierarchy(PurePosixPath(_unescape(before[4])), PurePosixPath(_unescape(before[3])))
    return found


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def parse_membership(text: str) -> dict[str, str]:
    """Parse ``/proc/<pid>/cgroup``: the group by controller; the v2 group under ``""``."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, separator, group = rest.partition(":")
        if separator and number.isdigit():
            groups.update(dict.fromkeys(controllers.split(","), group))
    return groups


def group_name(uid: str) -> str:
    """Return the name of the group of pod ``uid``; `ValueError` if that cannot be one."""
    if _UID.fullmatch(uid) is None:
        raise ValueError(f"{uid[:120]!r} is not a pod uid: letters, digits, '.', '_' and '-', at most 100.")
    return PREFIX + uid


def mounts() -> Mounts:
    """Return the cgroup mounts of this machine, as this process sees it."""
    return parse_mounts(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))


def membership(pid: int | None = None) -> dict[str, str]:
    """Return the control groups of ``pid``, or of this process, by controller."""
    return parse_membership(Path(f"/proc/{pid or 'self'}/cgroup").read_text(errors="surrogateescape"))


def create(parent: Path, uid: str) -> Path:
    """Create the pod's group below ``parent``; it may be there already."""
    path = parent / group_name(uid)
    path.mkdir(mode=0o755, exist_ok=True)
    return path


def enter(group: Path, pid: int) -> None:
    """Move process ``pid`` with all its threads; what it has started before stays where it is."""
    _write(group / "cgroup.procs", str(pid))


def processes(group: Path) -> tuple[int, ...]:
    """Return the pids of the group and all below it, ascending; 0 stands for one that has no number here.

    Empty if the group is gone.
    """
    found: set[int] = set()
    for directory in _tree(group):
        with contextlib.suppress(FileNotFoundError):
            try:
                found.update(int(line) for line in (directory / "cgroup.procs").read_text().split())
            except OSError as error:
                if error.errno not in (errno.ENODEV, errno.EOPNOTSUPP):  # removed meanwhile; threaded: parent lists
                    raise
    return tuple(sorted(found))


def populated(group: Path) -> bool:
    """Tell whether any process is in the group or below it."""
    try:
        lines = (group / "cgroup.events").read_text().split("\n")  # v2 only
    except OSError:
        return bool(processes(group))
    return "populated 1" in lines


def remove(group: Path) -> bool:
    """Remove the group and those below it; False if a process keeps it. True also if it was gone."""
    if not group.name.startswith(PREFIX):
        raise ValueError(f"{group} is not a group of this program.")
    if populated(group):
        return False
    for directory in reversed(list(_tree(group))):
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
    return True


def _tree(group: Path) -> Iterator[Path]:
    """Yield the group and all below it, parents first."""
    for directory, _, _ in os.walk(group):
        yield Path(directory)


def write(group: Path, name: str, text: str) -> None:
    """Write a control file of ``group`` and of all groups below it, parents first."""
    for directory in _tree(group):
        with contextlib.suppress(FileNotFoundError):
            _write(directory / name, text)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CLOEXEC
    )  # never created: a control file is there or the kernel lacks it
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
