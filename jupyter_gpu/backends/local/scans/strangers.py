"""Strangers: processes that use GPUs without having been given them.

No pod gave them the GPU: they belong to no pod, or to one that has no share of it. Not counted are programs that an
administrator listed, processes that ask the driver for all servers, and programs that have GPUs open without computing
on them.
"""

from __future__ import annotations

import functools
import pwd
from collections.abc import Collection, Iterable, Mapping

from jupyter_gpu.backends.local.processes.identity import alive, identity
from jupyter_gpu.backends.local.site.surroundings import elsewhere
from jupyter_gpu.model import strict
from jupyter_gpu.model.stranger import Stranger
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId

EVERY = 10.0
"""Seconds between two surveys while something is held."""
SOON = 1.0
"""Seconds until the first one after a grant that was made without one."""
NAME = 15
"""Bytes of its name that the kernel keeps of a program."""
_DAEMONS = ("nvidia-persistenced", "nvidia-powerd", "nv-fabricmanager", "nv-hostengine", "dcgm-exporter")
"""Daemons of the driver and around it. They run as system users: anybody can give a program such a name."""
_MONITORS = ("nvidia-smi", "nvtop", "nvitop", "gpustat", "btop")
_FIRST_PERSON = 1000
"""Ids below are of system users (login.defs(5), ``UID_MIN``)."""
MAX_COMMAND = 256


def commands(names: Iterable[str]) -> frozenset[str]:
    """Cut off the names of programs as ``/proc`` does."""
    return frozenset(name.encode()[:NAME].decode(errors="replace") for name in names)


_QUIET_DAEMONS, _QUIET_MONITORS = commands(_DAEMONS), commands(_MONITORS)


def quiet(process: proc.ProcessInfo) -> bool:
    """Tell whether the process is known to compute nothing on the GPUs that it has open."""
    daemon = process.command in _QUIET_DAEMONS and process.user < _FIRST_PERSON
    return daemon or process.command in _QUIET_MONITORS


Found = Mapping[str, tuple[proc.ProcessInfo, ...]]
"""Processes by uuid."""


class Strangers:
    """The strangers known now, and the time of the next survey: only while something is held.

    Times are ``time.monotonic``.
    """

    def __init__(self) -> None:
        self.found: Found = {}
        """Strangers by GPU; nothing is known of GPUs that are not named."""
        self.podless: Mapping[str, frozenset[ProcessId]] = {}
        """By uuid, processes of no pod, listed or not; of the GPUs of the latest survey."""
        self.elsewhere: frozenset[str] = frozenset()
        """Uuids of GPUs used by pods of which nothing is recorded here."""
        self._surveyed = self._next = float("-inf")

    @property
    def used(self) -> frozenset[str]:
        """Uuids of the GPUs that strangers use."""
        return frozenset(uuid for uuid, processes in self.found.items() if processes)

    def note(self, found: Found, pods: Collection[str] = ()) -> None:
        """Record a scan of some GPUs; ``pods``: uids of all that are recorded."""
        self.found = {**self.found, **found}
        others = {uuid for uuid, processes in found.items() if elsewhere(processes, pods)}
        self.elsewhere = self.elsewhere - found.keys() | others

    def survey(self, podless: Found, now: float) -> None:
        """Record a scan of all GPUs, which `note` has taken in, and set the time of the next."""
        self.podless = {uuid: frozenset(map(identity, processes)) for uuid, processes in podless.items()}
        self._surveyed, self._next = now, now + EVERY

    def granted(self, now: float) -> None:
        """Schedule a survey soon after a grant without one just before, so that no grant has to wait for it."""
        if now - self._surveyed >= SOON:
            self._next = now + SOON

    def due(self, held: Iterable[str], now: float) -> bool:
        """Tell whether it is time for a survey, or a known stranger has ended."""
        watched = self.watched(held)
        return now >= self._next or not all(map(alive, watched))

    def pause(self, now: float) -> float:
        """Return the seconds until the next survey."""
        return max(0.0, self._next - now)

    def watched(self, held: Iterable[str]) -> frozenset[ProcessId]:
        """Return the strangers whose end changes the view of a pod that holds these GPUs."""
        return frozenset(identity(process) for uuid in held for process in self.found.get(uuid, ()))

    def described(self) -> dict[str, tuple[Stranger, ...]]:
        """Describe the strangers, by uuid."""
        return {uuid: tuple(map(_describe, processes)) for uuid, processes in self.found.items() if processes}


def _describe(process: proc.ProcessInfo) -> Stranger:
    # Any program chooses its own name, control characters included.
    return Stranger(process.pid, strict.printable(process.command, MAX_COMMAND), account_of(process.user))


@functools.lru_cache(maxsize=256)
def account_of(user: int) -> str | None:
    """Return the name of an account, its number where it has none here, None where that is not known."""
    if user < 0:
        return None
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
