"""All bundles of a node that are parked or under way: who is parked next, and what host memory is booked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jupyter_gpu.model.parking import Obstacle, ParkCause
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .budget import Booking, GroupMemory, NodeMemory, missing, size_of
from .bundles import Bundle
from .checks import Refusal
from .members import Member, Send
from .messages import FromGate, ProcessState
from .parking import ParkedBundle, Phase
from .times import Times

PLACES = 4
"""Parks at a time: four take a third of what they take in turn, but 25 took five times as long each."""


class Key(NamedTuple):
    """The name of a bundle."""

    pod: str
    bundle: str


class NodeParking:
    """The parks of a node. ``first``: a number above those of all orders of earlier node sides."""

    def __init__(self, first: int, places: int = PLACES, times: Times | None = None) -> None:
        self.bundles: dict[Key, ParkedBundle] = {}
        self._number = first
        self._places = places
        self._times = times or Times()

    # --- orders -------------------------------------------------------------------------------------------------------

    def order(self, pod: str, bundle: Bundle, cause: ParkCause, now: float) -> Key:
        """Order a bundle whose checks say that it can be parked. One of its processes is under way: nothing."""
        key = Key(pod, bundle.name)
        for process in bundle.processes:
            if (other := self.of(process)) and self.bundles[other].phase is not Phase.RUNNING:
                return other
            if other:
                del self.bundles[other]  # its order has ended; other processes may belong together by now
        self.bundles[key] = ParkedBundle(pod, bundle.processes, self._times)
        self.bundles[key].ordered(self._number, cause, now)
        self._number += 1
        return key

    def found(
        self,
        pod: str,
        told: Mapping[ProcessId, ProcessState],
        now: float,
        *,
        recorded: str | None,
        cause: ParkCause | None = None,
    ) -> Key:
        """Take over a bundle from an earlier node side.

        ``recorded``: its name, if the record says that it is parked. ``cause``: of an order that stands.
        """
        key = Key(pod, recorded or Bundle(tuple(sorted(told, key=lambda one: (one.start, one.pid))), ()).name)
        self.bundles[key] = ParkedBundle.found(
            pod, told, now, recorded=recorded is not None, cause=cause, times=self._times
        )
        return key

    def admit(self, now: float) -> list[Send]:
        """Give the free places to those that were ordered first."""
        busy = sum(bundle.is_busy for bundle in self.bundles.values())
        queued = [bundle for bundle in self.bundles.values() if bundle.phase is Phase.QUEUED]
        admitted = sorted(queued, key=lambda bundle: (bundle.since, bundle.order))[: max(0, self._places - busy)]
        return [send for bundle in admitted for send in bundle.admitted(now)]

    def reserve(
        self,
        key: Key,
        groups: Sequence[GroupMemory],
        node: NodeMemory,
        now: float,
        reported: Mapping[ProcessId, int] | None = None,
    ) -> list[Send]:
        """Book the host memory of a bundle whose processes can be parked, and begin; or end the order.

        ``reported``: bytes that the driver reports for its processes.
        """
        bundle = self.bundles[key]
        if bundle.phase is not Phase.CHECKED:
            return []
        for member in bundle.members.values():
            member.host = size_of(member.size, member.contexts, (reported or {}).get(member.process))
        booked = [self._booking(one) for one in self.bundles.values() if one is not bundle and _is_booked(one)]
        lacks = missing(_host(bundle.members), key.pod, groups, node, booked)
        return bundle.reserved(Refusal(Obstacle.HOST_MEMORY, lacks) if lacks else None, now)

    @staticmethod
    def _booking(bundle: ParkedBundle) -> Booking:
        return Booking(bundle.pod, _host(bundle.members), bundle.is_parked)

    # --- events -------------------------------------------------------------------------------------------------------

    def of(self, process: ProcessId) -> Key | None:
        """Return the bundle of a process."""
        return next((key for key, bundle in self.bundles.items() if process in bundle.members), None)

    def heard(self, process: ProcessId, message: FromGate, now: float) -> list[Send]:
        """Handle a message; one of a process that has no order is of no interest here."""
        key = self.of(process)
        return self.bundles[key].heard(process, message, now) if key else []

    def ended(self, process: ProcessId, now: float) -> list[Send]:
        """Note that a process has ended; a bundle ends with its last one."""
        key = self.of(process)
        if key is None:
            return []
        sends = self.bundles[key].ended(process, now)
        if not self.bundles[key].members:
            del self.bundles[key]
        return sends

    @property
    def due(self) -> float | None:
        """The time at which `tick` has something to do; ``None``: never."""
        return min((bundle.due for bundle in self.bundles.values() if bundle.due is not None), default=None)

    def tick(self, now: float) -> list[Send]:
        """Handle what has become due."""
        return [send for bundle in self.bundles.values() for send in bundle.tick(now)]


def _is_booked(bundle: ParkedBundle) -> bool:
    """Tell whether some of its memory is in the host, or may come there without a further question."""
    return bundle.phase is Phase.PARKING or any(member.is_parked for member in bundle.members.values())


def _host(members: Mapping[ProcessId, Member]) -> int:
    return sum(member.host or size_of(member.size, member.contexts) for member in members.values())
