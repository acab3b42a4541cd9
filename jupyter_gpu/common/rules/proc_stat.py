"""The text of ``/proc/<pid>/stat`` (proc_pid_stat(5)). Pure."""

from __future__ import annotations

from typing import NamedTuple


class ProcStat(NamedTuple):
    """The fields of one process or thread; numbers are parsed when asked for."""

    command: str
    """Name of the program, at most 15 characters: it may itself hold blanks and brackets."""
    fields: tuple[str, ...]
    """The fields from the state on."""

    @property
    def state(self) -> str:
        """The state, one letter."""
        return self.fields[0]

    @property
    def parent(self) -> int:
        """Pid of the parent."""
        return int(self.fields[1])

    @property
    def flags(self) -> int:
        """The kernel's flags (``PF_…``, linux/sched.h)."""
        return int(self.fields[6])

    @property
    def start(self) -> int:
        """Clock ticks after boot at which it started."""
        return int(self.fields[19])

    @property
    def has_environment(self) -> bool:
        """Whether the kernel knows where its environment is."""
        return self.fields[48] != "0"


def parse(text: bytes) -> ProcStat:
    """Parse the text. What follows the last bracket is safe: before it stands the name, which may be anything."""
    before, _, after = text.rpartition(b")")
    return ProcStat(before.partition(b"(")[2].decode(errors="replace"), tuple(after.decode(errors="replace").split()))
