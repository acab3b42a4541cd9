"""A check, from inside, whether other servers of the machine see the same state directory; pure.

Two servers with a directory each would hand out the same GPUs. So it is compared with what the machine's first process
sees, which everybody may read in its table of mounts (`proc_pid_mountinfo(5)`). In another pid namespace there is no
such process; there only a mount of the machine's own directory, or a word of the administrator, speaks for it.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_ESCAPED = re.compile(r"\\([0-7]{3})")
_PRIVATE = "systemd-private-"
"""Prefix of the directories that systemd's ``PrivateTmp`` puts in the place of ``/tmp``."""


class Apart(Enum):
    """The reason other servers do not see the directory; the value is for people."""

    PRIVATE = "systemd gives this service a /tmp of its own (PrivateTmp)"
    MOUNTS = "this server runs with mounts of its own, as in a container"
    CONTAINER = "this server runs in a container"


Parts = tuple[str, ...]
"""Names of the directories on the way to one; none for the root."""


class MountEntry(NamedTuple):
    """One line of the table."""

    device: str
    root: Parts
    """The directory of its file system that is mounted."""
    point: Parts

    def inner(self, path: Parts) -> Parts:
        """Return the place of ``path``, which lies below the mount point, in the mounted file system."""
        return self.root + path[len(self.point) :]


class Surroundings(NamedTuple):
    """The surroundings that a server can see of itself."""

    path: str
    """The state directory, without links."""
    chosen: bool
    """Whether the administrator named it."""
    mounts: str
    """Our own table."""
    first: str | None
    """Table of the machine's first process; ``None`` where it cannot be read, or the first process is another one."""
    contained: bool
    """Whether the pid namespace is not the machine's."""


def apart(here: Surroundings) -> Apart | None:
    """Return the reason other servers do not see the directory; ``None``: they do, as far as is known."""
    path = parts(here.path)
    ours = behind(table(here.mounts), path)
    if ours is None:
        return None
    inner = ours.inner(path)
    private = any(part.startswith(_PRIVATE) for part in inner)
    if here.contained:
        return None if here.chosen or (ours.root and not private) else Apart.CONTAINER
    if private:
        return Apart.PRIVATE
    if here.first is None:
        return None
    theirs = table(here.first)
    same = behind(theirs, path)
    if same and (same.device, same.inner(path)) == (ours.device, inner):
        return None
    # What was mounted here on purpose lies elsewhere on the machine.
    bound = here.chosen and any(one.device == ours.device and _below(inner, one.root) for one in theirs)
    return None if bound else Apart.MOUNTS


def table(text: str) -> tuple[MountEntry, ...]:
    """Read the mounts, oldest first; a line that is none is left out."""
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 6:
            found.append(MountEntry(fields[2], parts(_plain(fields[3])), parts(_plain(fields[4]))))
    return tuple(found)


def behind(mounts: tuple[MountEntry, ...], path: Parts) -> MountEntry | None:
    """Return the mount that ``path`` leads to: the latest of those with the longest point."""
    above = [mount for mount in mounts if _below(path, mount.point)]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def parts(path: str) -> Parts:
    """Split an absolute path into its names."""
    return tuple(filter(None, path.split("/")))


def _below(path: Parts, above: Parts) -> bool:
    return path[: len(above)] == above


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
