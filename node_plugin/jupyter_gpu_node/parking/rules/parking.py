"""One bundle: the steps of its park and its return. Pure: events in, messages out; times are seconds.

    running → queued → checking → checked → parking → closing → recording → parked → opening → restoring → running

What a phase needs is carried out by others, again and again until it is so, and then told here: host memory in
`CHECKED`; rules that deny the GPUs, and a scan that finds them closed, in `CLOSING`; the record in `RECORDING`; rules
that allow them, and free memory, in `OPENING`. Until the record all is undone by a return to the same GPUs, which
nobody else can have yet (`ours`). After it they may be another's, until they are granted again.

A process that does not answer is waited for: that it hangs is told, and nothing is ended. A message to a process that
is not connected is lost: it tells its state when it connects again, and the order goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.parking import Obstacle, ParkCause
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .checks import Refusal, answered, failed
from .members import Member, Send
from .messages import (
    Can,
    Cancel,
    Cannot,
    Check,
    Failed,
    FromGate,
    FromNode,
    Map,
    Need,
    Park,
    Parked,
    ProcessState,
    Restore,
    Running,
    State,
    Use,
)
from .times import ANSWER, PATIENCE, RETRY, Times

_USUAL = Times()


class Phase(StrEnum):
    """The phase of a bundle."""

    RUNNING = "running"
    QUEUED = "queued"
    """Ordered; a node parks a few at a time."""
    CHECKING = "checking"
    """Its processes are asked whether a park could begin."""
    CHECKED = "checked"
    """They can; is there room in host memory?"""
    PARKING = "parking"
    """One process after the other."""
    CLOSING = "closing"
    """The rules deny the GPUs, and a scan looks whether they are closed."""
    RECORDING = "recording"
    """They are. The record is being written, and may have been."""
    PARKED = "parked"
    """Recorded: the GPUs may be another's."""
    OPENING = "opening"
    """It has its GPUs again. The rules allow them, and their memory is seen free."""
    RESTORING = "restoring"


_UNTOUCHED = (Phase.QUEUED, Phase.CHECKING, Phase.CHECKED)
"""Phases of an order in which nothing was done yet."""


class ParkedBundle:
    """One bundle, from an order on until it runs again."""

    def __init__(self, pod: str, processes: Iterable[ProcessId], times: Times = _USUAL) -> None:
        self.pod = pod
        self.phase = Phase.RUNNING
        self.since = 0.0
        """The time of the phase."""
        self.order = 0
        """Number of the last order."""
        self.cause: ParkCause | None = None
        """Its cause; ``None``: it does not stand any more."""
        self.failure: Refusal | None = None
        """The end of the last order, if that failed."""
        self.ours = True
        """Whether the GPUs can be returned to at once: they were not given up since they were open."""
        self.wanted = False
        """Whether its user wants it back ahead of a need."""
        self.hangs = False
        """Whether a process has not answered for too long."""
        self.members = {process: Member(process) for process in processes}
        self.due: float | None = None
        """The time at which `tick` has something to do; ``None``: never."""
        self._times = times
        self._maps: Mapping[ProcessId, Sequence[Map]] = {}
        self._sends: list[Send] = []

    @classmethod
    def found(
        cls,
        pod: str,
        told: Mapping[ProcessId, ProcessState],
        now: float,
        *,
        recorded: bool,
        cause: ParkCause | None = None,
        times: Times = _USUAL,
    ) -> ParkedBundle:
        """Return a bundle that is parked, or is being parked or brought back, by an order of an earlier node side.

        ``recorded``: the record says that it is parked, so its GPUs may be another's. ``cause``: of an order that
        stands.
        """
        bundle = cls(pod, (), times)
        bundle.members = {process: Member.found(process, state) for process, state in told.items()}
        bundle.order = max(state.order for state in told.values())
        bundle.ours, bundle.cause = not recorded, cause
        states = {state.state for state in told.values()}
        bundle._to(Phase.PARKED if recorded and states == {State.PARKED} else _phase(states) or Phase.RUNNING, now)
        return bundle

    # --- for those who carry it out -----------------------------------------------------------------------------------

    @property
    def denied(self) -> bool:
        """Whether the rules have to deny the GPUs, though the pod has them."""
        return self.phase in (Phase.CLOSING, Phase.RECORDING)

    @property
    def needed(self) -> bool:
        """Whether it has to come back."""
        return self.wanted or any(member.needs for member in self.members.values())

    @property
    def size(self) -> int:
        """Bytes of GPU memory that are parked, or would be."""
        return sum(member.size for member in self.members.values())

    @property
    def is_busy(self) -> bool:
        """Whether it has one of the node's places for parks; one that hangs keeps none from others."""
        return self.phase in (Phase.CHECKING, Phase.CHECKED, Phase.PARKING) and not self.hangs

    @property
    def is_parked(self) -> bool:
        """Whether all its processes are parked: then their host memory is in use."""
        return all(member.is_parked for member in self.members.values())

    # --- orders and needs ---------------------------------------------------------------------------------------------

    def ordered(self, number: int, cause: ParkCause, now: float) -> None:
        """Begin an order, unless one is there already."""
        if self.phase is Phase.RUNNING:
            self.order, self.cause, self.failure = number, cause, None
            self._to(Phase.QUEUED, now)

    def called_off(self, now: float) -> list[Send]:
        """End an order that nobody needs any more, if that is possible yet; again later: if it is possible then."""
        return self._undone(None, now) if self.cause else []

    def admitted(self, now: float) -> list[Send]:
        """Give it one of the node's places: ask its processes."""
        if self.phase is Phase.QUEUED:
            self._to(Phase.CHECKING, now, ANSWER)
            for member in self.members.values():
                member.can = False
                self._send(member, Check(self.order))
        return self._sent()

    def reserved(self, refusal: Refusal | None, now: float) -> list[Send]:
        """Park, as its host memory is booked; or end the order for that reason."""
        if self.phase is not Phase.CHECKED:
            return []
        if refusal:
            return self._undone(refusal, now)
        self._to(Phase.PARKING, now)
        return self._park_next(now)

    def want(self, now: float) -> list[Send]:
        """Bring it back ahead of a need, as its user wants it."""
        if self.phase not in (Phase.RUNNING, *_UNTOUCHED):
            self.wanted = True
        return self._needed(now)

    # --- what was carried out -----------------------------------------------------------------------------------------

    def scanned(self, began: float, holders: Sequence[Holder], now: float) -> list[Send]:
        """Note who has the GPUs open, by a scan that began at that time with the GPUs denied."""
        if self.phase is not Phase.CLOSING or began < self.since:
            return []
        if not holders:
            self._to(Phase.RECORDING, now)
            return []
        refusal = Refusal(Obstacle.NO_GATE, holders=tuple(holders))
        if self.ours:
            return self._undone(refusal, now)
        self.failure = refusal  # they drain
        return []

    def recorded(self, now: float) -> None:
        """Note that the record says that it is parked: from now on the GPUs may be another's."""
        if self.phase is Phase.RECORDING:
            self.cause, self.ours = None, False
            self._to(Phase.PARKED, now)

    def not_recorded(self, now: float) -> list[Send]:
        """Note that the record was certainly not written."""
        if self.phase is Phase.RECORDING:
            self._to(Phase.CLOSING, now)
        return self._needed(now)

    def granted(self, now: float) -> None:
        """Note that the pod has GPUs for it again, as its record says."""
        if self.phase is Phase.PARKED and self.needed:
            self._to(Phase.OPENING, now, PATIENCE)

    def revoked(self, now: float) -> None:
        """Note that it has not any more: others of the pod may have opened them, so it has to be proven again."""
        if self.phase is Phase.OPENING and not self.ours:
            self._to(Phase.CLOSING, now)

    def opened(self, now: float, maps: Mapping[ProcessId, Sequence[Map]] | None = None) -> list[Send]:
        """Bring it back, as its processes may open the GPUs now, and their memory is free.

        ``maps``: of the processes whose GPUs are others now.
        """
        if self.phase is Phase.OPENING:
            self._maps = maps or {}
            self._to(Phase.RESTORING, now)
            self._restore([member for member in self.members.values() if member.is_parked], now)
        return self._sent()

    # --- what processes say -------------------------------------------------------------------------------------------

    def heard(self, process: ProcessId, message: FromGate, now: float) -> list[Send]:
        """Handle a message of one of its processes. What answers no question of ours changes nothing."""
        member = self.members[process]
        match message:
            case Use(busy, cell) if self.phase in _UNTOUCHED and (busy or cell) and self.cause is not ParkCause.USER:
                return self._undone(Refusal(Obstacle.IN_USE), now)
            case Need(wanted):
                member.needs = wanted
                return self._needed(now)
            case ProcessState():
                return self._told(member, message, now)
            case Can(order, size, contexts) if self.phase is Phase.CHECKING and order == self.order:
                member.can, member.size, member.contexts = True, size, contexts
                self._all_can(now)
            case Cannot(order) if self.phase is Phase.CHECKING and order == self.order:
                return self._undone(answered(message), now)
            case Parked(order, size) if member.asked and order == self.order:
                member.asked, member.state, member.order, member.size = False, State.PARKED, order, size
                return self._answered(now)
            case Failed() if member.asked:
                return self._failed(member, message, now)
            case Running() if member.asked:
                return self._runs(member, State.RUNNING, now)
            case _:
                pass
        return []

    def ended(self, process: ProcessId, now: float) -> list[Send]:
        """Note that a process has ended: its GPUs and its host memory are free. The others of the bundle go on."""
        del self.members[process]
        if not self.members:
            return []  # and nothing is left of the bundle
        self._all_can(now)
        return self._answered(now)

    def tick(self, now: float) -> list[Send]:
        """Handle what has become due."""
        if self.due is None or now < self.due:
            return []
        self.due = None
        asked = any(member.asked for member in self.members.values())
        if self.phase is Phase.CHECKING:
            return self._undone(Refusal(Obstacle.HANGS), now)
        if self.phase is Phase.OPENING:
            self._to(Phase.CLOSING, now)  # their memory is not free: they are given back, and it is decided anew
        elif asked:
            self.hangs = True
        else:
            self._restore([member for member in self.members.values() if member.is_parked], now)
        return self._sent()

    # --- steps --------------------------------------------------------------------------------------------------------

    def _to(self, phase: Phase, now: float, patience: float | None = None) -> None:
        self.phase, self.since, self.hangs = phase, now, False
        self.due = None if patience is None else now + patience

    def _send(self, member: Member, message: FromNode) -> None:
        self._sends.append(Send(member.process, message))

    def _sent(self) -> list[Send]:
        sends, self._sends = self._sends, []
        return sends

    def _all_can(self, now: float) -> None:
        if self.phase is Phase.CHECKING and all(member.can for member in self.members.values()):
            self._to(Phase.CHECKED, now)

    def _answered(self, now: float) -> list[Send]:
        """Go on after a process has answered, or has ended, when no answer is outstanding."""
        if any(member.asked for member in self.members.values()):
            return self._sent()
        if self.phase is Phase.PARKING:
            return self._park_next(now)
        if self.phase not in (Phase.RUNNING, *_UNTOUCHED):
            self._restored(now)
        return self._sent()

    def _park_next(self, now: float) -> list[Send]:
        """Park the next process, or go on if none is left."""
        if self.cause is None or self.needed:  # undone meanwhile
            return self._return(now)
        member = next((one for one in self.members.values() if not one.is_parked), None)
        if member is None:
            self._to(Phase.CLOSING, now)
        else:
            member.asked = True
            self.hangs, self.due = False, now + self._times.until_park_hangs(member.size)
            self._send(member, Park(self.order, round(self._times.lock * 1000)))
        return self._sent()

    def _failed(self, member: Member, message: Failed, now: float) -> list[Send]:
        member.asked, member.state = False, message.state
        if self.phase is Phase.PARKING and self.cause:
            self.cause, self.failure = None, failed(message)
        elif member.state is State.LOST:
            self.failure = Refusal(Obstacle.BROKEN)
        return self._answered(now)

    def _runs(self, member: Member, state: State, now: float) -> list[Send]:
        member.asked, member.needs, member.state, member.order = False, False, state, 0
        if self.phase is Phase.PARKING and self.cause:  # undone by its gate, as the connection had ended
            self.cause, self.failure = None, Refusal(Obstacle.HANGS)
        return self._answered(now)

    def _undone(self, failure: Refusal | None, now: float) -> list[Send]:
        """End the order, and bring back what it has parked so far. After the record there is nothing to undo."""
        if self.phase is Phase.RECORDING:
            return []  # it may be done; if it certainly is not, the order is asked for again
        self.cause, self.failure = None, failure
        if self.phase in _UNTOUCHED:
            self._to(Phase.RUNNING, now)
        elif self.phase is Phase.CLOSING:
            return self._return(now)
        for member in self.members.values():
            if member.asked:
                self._send(member, Cancel(self.order))
        return self._sent()

    def _needed(self, now: float) -> list[Send]:
        """Begin the return if it is needed and the GPUs are still ours; end one that nobody needs any more."""
        if self.needed and self.ours and (self.phase is Phase.CLOSING or (self.phase is Phase.PARKING and self.cause)):
            return self._undone(Refusal(Obstacle.IN_USE), now)
        if not self.needed and self.phase is Phase.OPENING and not self.ours:
            self._to(Phase.CLOSING, now)
        return self._sent()

    def _return(self, now: float) -> list[Send]:
        """Bring back what is parked, to GPUs that nobody else can have."""
        if any(member.is_parked for member in self.members.values()):
            self._to(Phase.OPENING, now)
        else:
            self._over(now)
        return self._sent()

    def _restore(self, members: Iterable[Member], now: float) -> None:
        """Ask for the return of these, first of those that wait."""
        self.hangs, self.due = False, now + PATIENCE + self._times.until_return_hangs(self.size)
        for member in sorted(members, key=lambda one: not one.needs):
            maps = self._maps.get(member.process, ())
            member.asked = True
            self._send(member, Restore(member.order, len(maps), round(PATIENCE * 1000)))
            for one in maps:
                self._send(member, one)

    def _restored(self, now: float) -> None:
        """Go on when all have answered: it runs, or what could not open its GPUs is tried once more."""
        members = self.members.values()
        if not any(member.is_parked for member in members):
            self._over(now)
        elif self.phase is Phase.RESTORING and all(member.is_parked for member in members):
            self.ours = False  # none has the GPUs open: they are given back, and it is decided anew
            self._to(Phase.CLOSING, now)
        elif self.phase is Phase.RESTORING:
            self.due = now + RETRY

    def _over(self, now: float) -> None:
        self.wanted, self.cause, self.ours, self._maps = False, None, True, {}
        self._to(Phase.RUNNING, now)

    def _told(self, member: Member, told: ProcessState, now: float) -> list[Send]:
        """Take the state of a process that has connected again: what it was told before may be lost, or done."""
        if told.order and self.phase in (Phase.RUNNING, *_UNTOUCHED) and (phase := _phase({told.state})):
            self.members[member.process] = replace(Member.found(member.process, told), needs=member.needs)
            self.order = told.order
            self._to(phase, now)  # by an order of an earlier node side, before which this one has begun another
            return self._needed(now)
        if told.state in (State.PARKING, State.RETURNING):
            member.asked = True  # it answers when that has ended
            return []
        if told.state is not State.PARKED:
            return self._runs(member, told.state, now)
        was_asked, member.asked = member.asked, False
        member.state, member.order, member.size = State.PARKED, told.order, told.size
        if self.phase is Phase.RESTORING and was_asked:
            self._restore([member], now)
            return self._sent()
        return self._answered(now)


def _phase(states: Collection[State]) -> Phase | None:
    """Return the phase of a bundle that was found, by the states of its processes; ``None``: nothing is parked."""
    found = {State.PARKING: Phase.PARKING, State.RETURNING: Phase.RESTORING, State.PARKED: Phase.CLOSING}
    return next((phase for state, phase in found.items() if state in states), None)
