"""One share of a GPU as it is served, and its clients: the connections of its processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .memory import Pool
from .terms import Terms


@dataclass(slots=True, eq=False)
class ShareClient:
    """One connection of a process that uses the share."""

    share: ServedShare
    want: int | None = None
    """Microseconds, 0 for not known; None: no demand."""
    number: int = 0
    """Number of the last lease that it was given."""
    holds: bool = False
    """Whether it has not given that lease back."""
    old: bool = False
    """Whether its gate does not know a lease for one launch: it would reject that as no message."""
    ahead: bool = False
    """Whether its gate knows a lease in which it may be far ahead of the GPU."""
    single: bool = False
    """Whether its gate knows a lease in which nothing is queued behind what runs."""
    whole: bool = False
    """Whether that lease was for ever at any time."""


@dataclass(slots=True, eq=False)
class ServedShare:
    """One share of the GPU and its clients."""

    name: str
    key: str
    """Name with the arbiter: another one for a share that comes again while the old one drains."""
    terms: Terms
    effective: int
    pool: Pool
    clients: dict[ShareClient, None] = field(default_factory=dict)
    holding: int = 0
    """Number of clients that have the lease."""
    revoked: bool = False
    patient: int | None = None
    """Time since when it has said that its work takes longer."""
    gone: bool = False
    known_want: int | None = None
    """The demand that the arbiter knows."""
    work: int | None = 0
    """Microseconds that its clients measured in this turn; None if one left without a report: then all of it counts."""

    @property
    def exclusive(self) -> bool:
        """Whether it has the GPU for itself: its programs run as they like."""
        return self.terms.milli == MILLI_PER_GPU and self.terms.limit is None

    @property
    def guest(self) -> bool:
        """Whether it runs only while no other share has work."""
        return not self.terms.milli

    @property
    def steps(self) -> bool:
        """Whether all its clients know a lease for one launch."""
        return not any(one.old for one in self.clients)

    def total_want(self) -> int | None:
        """Return the demand of all clients together: they may run one after the other."""
        wants = [one.want for one in self.clients if one.want is not None]
        if not wants:
            return None
        return 0 if 0 in wants else sum(wants)
