"""The steps of one bundle, one after the other, and what each event does in each of them."""

from __future__ import annotations

import pytest

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.parking import Obstacle, ParkCause
from jupyter_gpu_node.parking.rules.checks import Refusal
from jupyter_gpu_node.parking.rules.members import Send
from jupyter_gpu_node.parking.rules.messages import (
    Can,
    Cancel,
    Cannot,
    Check,
    Failed,
    FromGate,
    Map,
    Need,
    Park,
    Parked,
    ProcessState,
    Reason,
    Restore,
    Running,
    State,
    Step,
    Use,
)
from jupyter_gpu_node.parking.rules.parking import ParkedBundle, Phase
from jupyter_gpu_node.parking.rules.times import ANSWER, PATIENCE, RETRY, Times
from jupyter_gpu_node.processes.rules.process_id import ProcessId

ONE, TWO = ProcessId(1, 1), ProcessId(2, 2)
GIB = 2**30
BACK = Restore(7, 0, 60_000)


def at(bundle: ParkedBundle) -> Phase:
    """Return its phase; a type checker takes an attribute that it has compared for one that stays."""
    return bundle.phase


class Case:
    """A bundle, and the messages that it has sent."""

    def __init__(self, *processes: ProcessId, cause: ParkCause = ParkCause.LINE) -> None:
        self.bundle = ParkedBundle("pod", processes or (ONE,))
        self.bundle.ordered(7, cause, 0)
        self.sent: list[Send] = []

    def does(self, sends: list[Send]) -> list[Send]:
        """Keep what was sent since the last call."""
        self.sent = sends
        return sends

    def says(self, message: FromGate, process: ProcessId = ONE, now: float = 1) -> list[Send]:
        """Let a process say something."""
        return self.does(self.bundle.heard(process, message, now))

    def until(self, phase: Phase) -> ParkedBundle:
        """Go on until that phase, without a fault."""
        bundle = self.bundle
        while bundle.phase is not phase:
            match bundle.phase:
                case Phase.QUEUED:
                    self.does(bundle.admitted(1))
                case Phase.CHECKING:
                    for process in list(bundle.members):
                        self.says(Can(7, GIB, 1), process)
                case Phase.CHECKED:
                    self.does(bundle.reserved(None, 1))
                case Phase.PARKING:
                    for process in list(bundle.members):
                        self.says(Parked(7, GIB, 1, 2), process)
                case Phase.CLOSING:
                    self.does(bundle.scanned(1, [], 1))
                case Phase.RECORDING:
                    bundle.recorded(1)
                case Phase.PARKED:
                    self.says(Need(True))
                    bundle.granted(1)
                case _:
                    self.does(bundle.opened(1))
        return bundle


@pytest.fixture
def case() -> Case:
    """Return one process with an order, which another pod's need has caused."""
    return Case()


def test_park_and_return() -> None:
    """Each step is asked for once; the order's number is in all of them."""
    case = Case(ONE, TWO)
    bundle = case.bundle
    assert case.does(bundle.admitted(0)) == [Send(ONE, Check(7)), Send(TWO, Check(7))]
    assert case.says(Can(7, GIB, 1)) == []
    assert (case.says(Can(7, GIB, 1), TWO), bundle.phase, bundle.size) == ([], Phase.CHECKED, 2 * GIB)
    assert bundle.reserved(None, 1) == [Send(ONE, Park(7, 2000))]
    assert not bundle.is_parked
    assert case.says(Parked(7, GIB, 1, 2)) == [Send(TWO, Park(7, 2000))]
    assert not bundle.denied
    assert case.says(Parked(7, GIB, 1, 2), TWO) == []
    assert (bundle.phase, bundle.denied, bundle.is_parked) == (Phase.CLOSING, True, True)
    bundle.scanned(1, [], 1)
    assert (bundle.phase, bundle.denied) == (Phase.RECORDING, True)
    bundle.recorded(2)
    assert (bundle.phase, bundle.denied, bundle.ours) == (Phase.PARKED, False, False)
    bundle.granted(3)
    assert at(bundle) is Phase.PARKED, "nobody needs it"
    case.says(Need(True), TWO)
    bundle.granted(3)
    assert at(bundle) is Phase.OPENING
    assert bundle.opened(4) == [Send(TWO, BACK), Send(ONE, BACK)], "who waits is the first"
    case.says(Running(7, 1, 2), TWO)
    assert at(bundle) is Phase.RESTORING
    case.says(Running(7, 1, 2))
    assert (bundle.phase, bundle.needed, bundle.failure, bundle.due) == (Phase.RUNNING, False, None, None)


def test_order_in_the_middle_of_one_is_nothing(case: Case) -> None:
    """Nor does a step begin that is not next."""
    bundle = case.until(Phase.CHECKING)
    bundle.ordered(8, ParkCause.IDLE, 2)
    assert (bundle.order, bundle.admitted(2), bundle.reserved(None, 2)) == (7, [], [])
    assert bundle.scanned(2, [], 2) == []
    bundle.recorded(2)
    bundle.granted(2)
    bundle.revoked(2)
    assert (bundle.opened(2), bundle.not_recorded(2), bundle.phase) == ([], [], Phase.CHECKING)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.CHECKING, Phase.CHECKED])
@pytest.mark.parametrize("use", [Use(True, False, 0, 1), Use(False, True, 1, 1)])
def test_use_ends_an_order_that_has_touched_nothing(phase: Phase, use: Use) -> None:
    """But a user's own order is given in a cell, and stays."""
    case, own = Case(), Case(cause=ParkCause.USER)
    case.until(phase)
    assert case.says(use) == []
    assert (case.bundle.phase, case.bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.IN_USE))
    own.until(phase)
    own.says(use)
    own.says(Use(False, False, 9, 1))
    assert at(own.bundle) is phase


def test_process_that_cannot_ends_the_order(case: Case) -> None:
    """Its reason is kept; an answer to another order is none."""
    bundle = case.until(Phase.CHECKING)
    case.says(Cannot(6, Reason.MANAGED))
    case.says(Can(6, 1, 1))
    assert at(bundle) is Phase.CHECKING
    case.says(Cannot(7, Reason.SPACE, 9))
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.ADDRESS_SPACE, 9))


def test_process_that_does_not_answer_a_check_ends_the_order(case: Case) -> None:
    """After its time."""
    bundle = case.until(Phase.CHECKING)
    assert bundle.due == 1 + ANSWER
    assert (bundle.tick(ANSWER), bundle.phase) == ([], Phase.CHECKING)
    assert (bundle.tick(1 + ANSWER), bundle.failure) == ([], Refusal(Obstacle.HANGS))
    assert (bundle.phase, bundle.tick(100)) == (Phase.RUNNING, [])


def test_without_room_in_host_memory_nothing_is_touched(case: Case) -> None:
    """The order ends with what is missing."""
    bundle = case.until(Phase.CHECKED)
    assert bundle.reserved(Refusal(Obstacle.HOST_MEMORY, 5), 1) == []
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.HOST_MEMORY, 5))


def test_park_that_fails_brings_back_the_others() -> None:
    """At once, to the same GPUs."""
    case = Case(ONE, TWO)
    bundle = case.until(Phase.PARKING)
    case.says(Parked(7, GIB, 1, 2))
    assert case.says(Failed(7, Step.LOCK, State.RUNNING, 600), TWO) == []
    assert (bundle.phase, bundle.failure, bundle.denied) == (Phase.OPENING, Refusal(Obstacle.IN_USE), False)
    bundle.revoked(2)
    assert at(bundle) is Phase.OPENING, "they were never given up"
    assert bundle.opened(2) == [Send(ONE, BACK)]
    case.says(Running(7, 1, 2))
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.IN_USE))


def test_checkpoint_that_fails_is_the_last(case: Case) -> None:
    """The process runs, and is told to be broken."""
    bundle = case.until(Phase.PARKING)
    assert case.says(Failed(7, Step.CHECKPOINT, State.BROKEN, 801)) == []
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.BROKEN, 801))
    assert bundle.members[ONE].state is State.BROKEN


def test_need_undoes_a_park_that_goes_on() -> None:
    """The step that runs is called off; if it ends all the same, the process is brought back."""
    case = Case(ONE, TWO)
    bundle = case.until(Phase.PARKING)
    case.says(Parked(7, GIB, 1, 2))
    assert case.says(Need(True)) == [Send(TWO, Cancel(7))]
    assert case.says(Need(True)) == [], "once"
    assert case.says(Parked(7, GIB, 1, 2), TWO) == []
    assert bundle.opened(2) == [Send(ONE, BACK), Send(TWO, BACK)]
    case.says(Running(7, 1, 2))
    case.says(Running(7, 1, 2), TWO)
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.IN_USE))


def test_called_off_while_it_parks(case: Case) -> None:
    """It ends without a reason."""
    bundle = case.until(Phase.PARKING)
    assert bundle.called_off(2) == [Send(ONE, Cancel(7))]
    assert bundle.called_off(2) == []
    case.says(Failed(7, Step.LOCK, State.RUNNING, 0))
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, None)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.CHECKING, Phase.CHECKED])
def test_called_off_before(case: Case, phase: Phase) -> None:
    """Nothing was touched."""
    bundle = case.until(phase)
    assert (bundle.called_off(2), bundle.phase) == ([], Phase.RUNNING)


def test_process_that_hangs_is_told_and_keeps_no_place(case: Case) -> None:
    """It is waited for: its answer counts whenever it comes."""
    bundle = case.until(Phase.PARKING)
    late = 1 + Times().until_park_hangs(GIB)
    assert bundle.due == late
    assert (bundle.hangs, bundle.is_busy) == (False, True)
    assert bundle.tick(late) == []
    assert (bundle.phase, bundle.hangs, bundle.is_busy) == (Phase.PARKING, True, False)
    case.says(Parked(7, GIB, 1, 2), now=500)
    assert (bundle.phase, bundle.hangs) == (Phase.CLOSING, False)


def test_scan_counts_only_if_it_began_with_the_gpus_denied(case: Case) -> None:
    """An earlier one proves nothing."""
    bundle = case.until(Phase.CLOSING)
    assert bundle.scanned(0.5, [], 2) == []
    assert at(bundle) is Phase.CLOSING


def test_process_that_keeps_the_gpu_open_ends_the_order(case: Case) -> None:
    """The parked ones return, and the process is named."""
    bundle, worker = case.until(Phase.CLOSING), Holder(9, "worker")
    assert bundle.scanned(1, [worker], 2) == []
    assert (bundle.phase, bundle.failure) == (Phase.OPENING, Refusal(Obstacle.NO_GATE, holders=(worker,)))


@pytest.mark.parametrize("how", ["need", "want", "called off"])
def test_before_the_record_all_is_undone(case: Case, how: str) -> None:
    """While the record is written nothing is known; if it was not written, the GPUs are still ours."""
    bundle = case.until(Phase.RECORDING)
    for _ in range(2):
        if how == "need":
            case.says(Need(True))
        elif how == "want":
            bundle.want(2)
        else:
            bundle.called_off(2)
        if bundle.phase is Phase.RECORDING:
            bundle.not_recorded(2)
    assert at(bundle) is Phase.OPENING


def test_after_the_record_a_need_waits_for_the_gpus(case: Case) -> None:
    """Also one that came while it was written; an order cannot be undone any more."""
    bundle = case.until(Phase.RECORDING)
    case.says(Need(True))
    bundle.recorded(2)
    assert (bundle.phase, bundle.needed, bundle.called_off(2)) == (Phase.PARKED, True, [])
    case.says(Need(False))
    assert not bundle.needed


@pytest.mark.parametrize("how", ["revoked", "no need", "no memory"])
def test_return_that_does_not_begin_gives_the_gpus_back(case: Case, how: str) -> None:
    """They were allowed for a while, so they are proven closed again; a need goes to the line."""
    bundle = case.until(Phase.OPENING)
    if how == "revoked":
        bundle.revoked(2)
    elif how == "no need":
        case.says(Need(False))
    else:
        assert bundle.due == 1 + PATIENCE
        bundle.tick(1 + PATIENCE)
    assert (bundle.phase, bundle.denied) == (Phase.CLOSING, True)
    case.says(Need(True), now=70)
    assert at(bundle) is Phase.CLOSING, "not in a circle"
    worker = Holder(9, "worker")
    bundle.scanned(70, [worker], 70)
    assert (bundle.phase, bundle.failure) == (Phase.CLOSING, Refusal(Obstacle.NO_GATE, holders=(worker,)))
    bundle.scanned(71, [], 71)
    bundle.recorded(72)
    assert (bundle.phase, bundle.needed) == (Phase.PARKED, True)


def test_return_that_cannot_open_the_gpu_gives_it_back(case: Case) -> None:
    """The data are safe; it is decided anew."""
    bundle = case.until(Phase.RESTORING)
    case.says(Failed(7, Step.RESTORE, State.PARKED, 801), now=70)
    assert (bundle.phase, bundle.needed, bundle.ours) == (Phase.CLOSING, True, False)


def test_one_of_several_that_cannot_return_is_tried_again() -> None:
    """The others have the GPU open, so it stays."""
    case = Case(ONE, TWO)
    bundle = case.until(Phase.RESTORING)
    case.says(Failed(7, Step.RESTORE, State.PARKED, 801), TWO, 70)
    case.says(Running(7, 1, 2), now=70)
    assert (bundle.phase, bundle.due) == (Phase.RESTORING, 70 + RETRY)
    assert bundle.tick(70 + RETRY) == [Send(TWO, BACK)]
    assert case.says(Failed(7, Step.RESTORE, State.LOST, 2), TWO, 80) == []
    assert (bundle.phase, bundle.failure) == (Phase.RUNNING, Refusal(Obstacle.BROKEN))


def test_return_that_hangs_is_told(case: Case) -> None:
    """And waited for."""
    bundle = case.until(Phase.RESTORING)
    assert bundle.due
    assert bundle.tick(bundle.due) == []
    assert bundle.hangs
    case.says(Running(7, 1, 2), now=500)
    assert (bundle.phase, bundle.hangs) == (Phase.RUNNING, False)


def test_others_gpus_are_mapped(case: Case) -> None:
    """The maps follow the order to come back."""
    bundle, maps = case.until(Phase.OPENING), [Map("GPU-a", 0), Map("GPU-b", 1)]
    assert bundle.opened(2, {ONE: maps}) == [Send(ONE, Restore(7, 2, 60_000)), *(Send(ONE, one) for one in maps)]


def test_wish_to_return_without_a_park_is_nothing(case: Case) -> None:
    """It does not undo an order that has touched nothing."""
    assert case.bundle.want(1) == []
    assert (case.bundle.phase, case.bundle.needed) == (Phase.QUEUED, False)
    bundle = case.until(Phase.CLOSING)
    bundle.want(2)
    assert (bundle.phase, bundle.needed) == (Phase.OPENING, True)


# --- processes that end, and connections that end -----------------------------------------------------------------


def test_process_that_ends_leaves_the_others() -> None:
    """In each step these go on without it."""
    for phase in (Phase.CHECKING, Phase.PARKING, Phase.CLOSING, Phase.PARKED, Phase.OPENING, Phase.RESTORING):
        case = Case(ONE, TWO)
        bundle = case.until(phase)
        if phase is Phase.CHECKING:
            case.says(Can(7, GIB, 1), TWO)
        if phase is Phase.RESTORING:
            case.says(Running(7, 1, 2), TWO)
        sends = bundle.ended(ONE, 2)
        after = {Phase.CHECKING: Phase.CHECKED, Phase.RESTORING: Phase.RUNNING}.get(phase, phase)
        assert at(bundle) is after
        assert sends == ([Send(TWO, Park(7, 2000))] if phase is Phase.PARKING else [])
        assert bundle.ended(TWO, 2) == []
        assert not bundle.members


def test_last_parked_process_that_ends_leaves_running_ones() -> None:
    """Then nothing is parked any more."""
    case = Case(ONE, TWO)
    bundle = case.until(Phase.PARKING)
    case.says(Parked(7, GIB, 1, 2))
    case.says(Failed(7, Step.LOCK, State.RUNNING, 600), TWO)
    assert at(bundle) is Phase.OPENING
    bundle.ended(ONE, 2)
    assert at(bundle) is Phase.RUNNING


def test_connection_that_ended_in_a_park() -> None:
    """The gate tells how it went: undone, done, or still under way."""
    undone, done, goes_on = Case(ONE, TWO), Case(ONE, TWO), Case(ONE, TWO)
    for case in (undone, done, goes_on):
        case.until(Phase.PARKING)
        case.says(Parked(7, GIB, 1, 2))
    undone.says(ProcessState(State.RUNNING), TWO)
    assert (undone.bundle.phase, undone.bundle.failure) == (Phase.OPENING, Refusal(Obstacle.HANGS))
    done.says(ProcessState(State.PARKED, 7, GIB, 5), TWO)
    assert at(done.bundle) is Phase.CLOSING
    goes_on.says(ProcessState(State.PARKING, 7), TWO)
    assert at(goes_on.bundle) is Phase.PARKING
    goes_on.says(Parked(7, GIB, 1, 2), TWO)
    assert at(goes_on.bundle) is Phase.CLOSING


def test_connection_that_ended_in_a_return(case: Case) -> None:
    """Its lost messages are told again."""
    bundle = case.until(Phase.RESTORING)
    assert case.says(ProcessState(State.PARKED, 7, GIB)) == [Send(ONE, BACK)]
    assert case.says(ProcessState(State.RETURNING, 7, GIB)) == []
    case.says(ProcessState(State.RUNNING))
    assert at(bundle) is Phase.RUNNING


def test_connection_that_ended_otherwise_changes_nothing(case: Case) -> None:
    """A parked process is still parked."""
    for phase in (Phase.CHECKING, Phase.CHECKED):
        case.until(phase)
        assert case.says(ProcessState(State.RUNNING)) == []
        assert at(case.bundle) is phase
    for phase in (Phase.CLOSING, Phase.PARKED, Phase.OPENING):
        bundle = case.until(phase)
        assert case.says(ProcessState(State.PARKED, 7, GIB)) == []
        assert at(bundle) is phase


def test_answers_to_no_question_change_nothing(case: Case) -> None:
    """They may be old, or forged."""
    bundle = case.until(Phase.CHECKED)
    for message in (Parked(7, 1, 1, 1), Running(7, 1, 1), Failed(7, 1, State.LOST, 2), Can(7, 1, 1), Cannot(7, 1)):
        assert case.says(message) == []
        assert (bundle.phase, bundle.size) == (Phase.CHECKED, GIB)
    case.until(Phase.PARKING)
    case.says(Parked(6, 1, 1, 1))
    assert at(bundle) is Phase.PARKING


# --- after an earlier node side -----------------------------------------------------------------------------------


def _found(state: State, *, recorded: bool = False, cause: ParkCause | None = None) -> ParkedBundle:
    return ParkedBundle.found("pod", {ONE: ProcessState(state, 7, GIB)}, 0, recorded=recorded, cause=cause)


def test_recorded_park_is_found() -> None:
    """It stays parked, and returns by the line."""
    bundle = _found(State.PARKED, recorded=True)
    assert (bundle.phase, bundle.ours, bundle.size, bundle.is_parked) == (Phase.PARKED, False, GIB, True)


def test_park_that_was_not_recorded_is_found() -> None:
    """It goes on to the record, or returns at once."""
    bundle = _found(State.PARKED)
    assert (bundle.phase, bundle.ours) == (Phase.CLOSING, True)
    bundle.heard(ONE, Need(True), 1)
    assert at(bundle) is Phase.OPENING
    assert bundle.opened(2) == [Send(ONE, BACK)]


@pytest.mark.parametrize("cause", [None, ParkCause.LINE])
def test_park_under_way_is_found(cause: ParkCause | None) -> None:
    """It goes on if the order stands, else it is undone."""
    bundle = _found(State.PARKING, cause=cause)
    assert at(bundle) is Phase.PARKING
    bundle.heard(ONE, Parked(7, GIB, 1, 2), 1)
    assert at(bundle) is (Phase.CLOSING if cause else Phase.OPENING)


def test_return_under_way_is_found() -> None:
    """Its end is told."""
    bundle = _found(State.RETURNING)
    assert (bundle.phase, bundle.size) == (Phase.RESTORING, GIB)
    bundle.heard(ONE, Running(7, 1, 2), 1)
    assert at(bundle) is Phase.RUNNING


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.QUEUED, Phase.CHECKING, Phase.CHECKED])
def test_park_of_an_earlier_node_side_shows_late(phase: Phase) -> None:
    """This one has ordered the same process before it connected again: it goes on from what is so."""
    parked, parking, returning, own, needs = Case(), Case(), Case(), Case(), Case()
    for case in (parked, parking, returning, own, needs):
        if phase is Phase.RUNNING:
            case.bundle.called_off(1)
        case.until(phase)
    needs.says(Need(True))
    needs.says(ProcessState(State.PARKED, 5, GIB))
    assert at(needs.bundle) is Phase.OPENING
    parked.says(ProcessState(State.PARKED, 5, GIB))
    assert (at(parked.bundle), parked.bundle.order) == (Phase.CLOSING, 5)
    parking.says(ProcessState(State.PARKING, 5))
    assert at(parking.bundle) is Phase.PARKING
    parking.says(Parked(5, GIB, 1, 2))
    assert at(parking.bundle) is (Phase.OPENING if phase is Phase.RUNNING else Phase.CLOSING)
    returning.says(ProcessState(State.RETURNING, 5, GIB))
    assert at(returning.bundle) is Phase.RESTORING
    own.says(ProcessState(State.PARKED, 0, GIB))
    assert at(own.bundle) is phase, "no order has parked it: it is left alone"
