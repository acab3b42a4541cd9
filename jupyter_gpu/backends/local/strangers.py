"""Who uses GPUs without having been given them.

That is a process which no pod gave the GPU to: one of no pod, or one of a pod that has no share of it. Not counted are
programs that an administrator listed, processes that ask the driver for all servers, and programs that have GPUs open
without computing on them.
"""

from __future__ import annotations

import functools
import pwd
from collections.abc import Collection, Iterable, Mapping

from jupyter_gpu.model import strict
from jupyter_gpu.model.stranger import Stranger
from jupyter_gpu_node import proc

from .processes import Process, alive
from .surroundings import elsewhere

EVERY = 10.0
"""Seconds between two surveys while something is held."""
SOON = 1.0
"""Seconds until the first one after a grant that was made without one."""
NAME = 15
"""Bytes of its name that the kernel keeps of a program."""
_DAEMONS = ("nvidia-persistenced", "nvidia-powerd", "nv-fabricmanager", "nv-hostengine", "dcgm-exporter")
"""Of the driver and around it. They run as system users: anybody can call a program so."""
_MONITORS = ("nvidia-smi", "nvtop", "nvitop", "gpustat", "btop")
_FIRST_PERSON = 1000
"""Ids below are of system users (login.defs(5), ``UID_MIN``)."""
MAX_COMMAND = 256


def commands(names: Iterable[str]) -> frozenset[str]:
    """Names of programs as ``/proc`` tells them: cut off."""
    return frozenset(name.encode()[:NAME].decode(errors="replace") for name in names)


_QUIET_DAEMONS, _QUIET_MONITORS = commands(_DAEMONS), commands(_MONITORS)


def quiet(process: proc.Process) -> bool:
    """Whether it is known to compute nothing on the GPUs that it has open."""
    daemon = process.command in _QUIET_DAEMONS and process.user < _FIRST_PERSON
    return daemon or process.command in _QUIET_MONITORS


Found = Mapping[str, tuple[proc.Process, ...]]
"""By uuid."""


class Strangers:
    """What is known of them now, and when to look again: only while something is held. Times are ``time.monotonic``."""

    def __init__(self) -> None:
        self.found: Found = {}
        """Of GPUs that are not named, nothing is known."""
        self.alone: Mapping[str, frozenset[Process]] = {}
        """By uuid, processes of no pod, listed or not; of the GPUs of the latest survey."""
        self.elsewhere: frozenset[str] = frozenset()
        """Uuids of GPUs that are used by pods of which nothing is recorded here."""
        self._surveyed = self._next = float("-inf")

    @property
    def used(self) -> frozenset[str]:
        """The uuids that somebody uses who was not given them."""
        return frozenset(uuid for uuid, processes in self.found.items() if processes)

    def note(self, found: Found, pods: Collection[str] = ()) -> None:
        """Of a look at some GPUs; ``pods``: uids of all that are recorded."""
        self.found = {**self.found, **found}
        others = {uuid for uuid, processes in found.items() if elsewhere(processes, pods)}
        self.elsewhere = self.elsewhere - found.keys() | others

    def survey(self, alone: Found, now: float) -> None:
        """Of a look at all of them, which was noted."""
        self.alone = {uuid: frozenset(map(Process.of, processes)) for uuid, processes in alone.items()}
        self._surveyed, self._next = now, now + EVERY

    def granted(self, now: float) -> None:
        """A GPU was granted: where nobody looked before it, somebody does soon, but in nobody's way."""
        if now - self._surveyed >= SOON:
            self._next = now + SOON

    def due(self, held: Iterable[str], now: float) -> bool:
        """Whether it is time for a survey, or one of those that are known has ended."""
        watched = self.watched(held)
        return now >= self._next or not all(map(alive, watched))

    def pause(self, now: float) -> float:
        """Seconds until it is time."""
        return max(0.0, self._next - now)

    def watched(self, held: Iterable[str]) -> frozenset[Process]:
        """Those whose end changes what a pod that holds these is told."""
        return frozenset(Process.of(process) for uuid in held for process in self.found.get(uuid, ()))

    def told(self) -> dict[str, tuple[Stranger, ...]]:
        """In words, by uuid."""
        return {uuid: tuple(map(_told, processes)) for uuid, processes in self.found.items() if processes}


def _told(process: proc.Process) -> Stranger:
    # Any program chooses its own name, control characters included.
    return Stranger(process.pid, strict.printable(process.command, MAX_COMMAND), account_of(process.user))


@functools.lru_cache(maxsize=256)
def account_of(user: int) -> str | None:
    """Name of an account, its number where it has none here, None where that is not known."""
    if user < 0:
        return None
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
