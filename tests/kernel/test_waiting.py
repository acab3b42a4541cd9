"""What `resize` and `at_least` do next: pure generators, driven by scripted answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jupyter_gpu.client import Call
from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.errors import (
    BackendUnavailable,
    Draining,
    GpuError,
    Infeasible,
    LimitExceeded,
    NoCapacity,
    ServerUnreachable,
    StaleGeneration,
)
from jupyter_gpu.model.view import User, View
from jupyter_gpu.waiting import Ledger, Patience, Pause, Steps, give_back, holders, resize, settle, take, with_amount

from .builders import view


@dataclass
class Recorder:
    """A progress that remembers."""

    visible: bool = False
    shown: list[View] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    closed: int = 0

    def show(self, view: View) -> None:
        self.shown.append(view)

    def say(self, text: str) -> None:
        self.said.append(text)

    def close(self, view: View) -> None:
        self.closed += 1


def patience(timeout: float | None = None, itself: bool = False) -> Patience:
    return Patience(timeout, Recorder(), lambda _: itself)


def drive(
    steps: Steps, *answers: View | BaseException, into: list[Call | Pause] | None = None
) -> tuple[View, list[Call | Pause]]:
    """Answer each call in turn; pauses are skipped. The result and what was done (also ``into`` a list)."""
    done: list[Call | Pause] = [] if into is None else into
    step = next(steps)
    script = iter(answers)
    while True:
        done.append(step)
        try:
            if isinstance(step, Pause):
                step = steps.send(view())
                continue
            answer = next(script)
            step = steps.throw(answer) if isinstance(answer, BaseException) else steps.send(answer)
        except StopIteration as end:
            return end.value, done


def calls(done: list[Call | Pause]) -> list[tuple[str, Mapping[str, Any] | None]]:
    return [(step.method, step.body) for step in done if isinstance(step, Call)]


def test_fulfilled_at_once() -> None:
    """One call where the answer already is what was wanted, and no progress bar."""
    mine = patience()
    result, done = drive(resize({"milli": 1000}, mine), view(1000))
    assert calls(done) == [("PUT", {"milli": 1000})]
    assert result.status.attached == 1000
    assert isinstance(mine.progress, Recorder)
    assert mine.progress.shown == []


def test_not_waiting() -> None:
    """Without patience the first answer is the result, whatever it says."""
    result, done = drive(resize({"milli": 2000}, None), view(2000, attached=0, position=2))
    assert len(done) == 1
    assert not result.status.settled


def test_waits_in_line() -> None:
    """It asks for what is newer than the last view until the wish is fulfilled."""
    mine = patience()
    result, done = drive(
        resize({"milli": 2000}, mine),
        view(2000, attached=0, version=1, position=2),
        view(2000, attached=1000, version=2, position=1),
        view(2000, version=3),
    )
    assert result.status.attached == 2000
    assert [step.path.split("&")[0] for step in done[1:] if isinstance(step, Call)] == [
        "status?after=one:1",
        "status?after=one:2",
    ]
    assert isinstance(mine.progress, Recorder)
    assert [shown.version for shown in mine.progress.shown] == [1, 2]
    assert mine.progress.closed == 1


def test_time_is_over_in_line() -> None:
    """NoCapacity tells what is there and the place in line; the wish stands, so nothing is written."""
    with pytest.raises(NoCapacity) as caught:
        drive(resize({"milli": 3000}, patience(0)), view(3000, attached=1000, position=2))
    assert (caught.value.have, caught.value.queue) == (1000, 2)


def test_time_is_over_while_draining() -> None:
    """Draining names who has the GPU open."""
    user = User(99, "python", kernel="k", notebook="work/analysis.ipynb")
    with pytest.raises(Draining, match=r"analysis\.ipynb") as caught:
        drive(resize({"milli": 0}, patience(0)), view(0, generation=2, draining=(0,), users=(user,)))
    assert caught.value.holders == [user.to_json()]


def test_time_is_over_while_attaching() -> None:
    """A server that decided but does not attach is neither full nor draining."""
    with pytest.raises(BackendUnavailable, match="request stands"):
        drive(settle(view(1000, attached=0, seen=False), patience(0)))


def test_waiting_for_itself() -> None:
    """This process has the GPU open that it gives back: it says so at once, with the two ways out."""
    user = User(1, "python")
    with pytest.raises(Draining, match=r"itself still has GPU 1 open.*restart this kernel.*gpu\.resize\(2\)"):
        drive(resize({"milli": 1000}, patience(itself=True)), view(1000, generation=2, draining=(1,), users=(user,)))


def test_somebody_else_drains() -> None:
    """Another process may close the GPU at any time: wait for it."""
    other = User(2, "python")
    first = view(0, generation=2, draining=(0,), users=(other,))
    result, _ = drive(resize({"milli": 0}, patience()), first, view(0, generation=2, version=2))
    assert result.status.draining == 0


def test_somebody_changed_the_wish() -> None:
    """A wait for a wish that is no longer the wish would never end."""
    with pytest.raises(StaleGeneration, match="changed to 3 GPUs"):
        drive(
            resize({"milli": 2000}, patience()),
            view(2000, attached=0, generation=4),
            view(3000, attached=0, generation=5, version=2),
        )


@pytest.mark.parametrize(("reason", "error"), [(Reason.LIMIT_EXCEEDED, LimitExceeded), (Reason.INFEASIBLE, Infeasible)])
def test_refused_later(reason: Reason, error: type[GpuError]) -> None:
    """A refusal of the scheduler ends the wait with its own error."""
    with pytest.raises(error):
        drive(settle(view(2000, attached=0, reason=reason), patience()))


def test_ctrl_c_leaves_the_wish() -> None:
    """Ctrl-C is raised again after the sentence that says what is so; nothing is taken back."""
    mine = patience()
    with pytest.raises(KeyboardInterrupt):
        drive(resize({"milli": 2000}, mine), view(2000, attached=0, position=1), KeyboardInterrupt())
    assert isinstance(mine.progress, Recorder)
    assert "the request for 2 GPUs stands" in mine.progress.said[0]
    assert "gpu.release() cancels it" in mine.progress.said[0]


def test_server_restarts_during_a_wait() -> None:
    """A server that was there is waited for: its state is on disk."""
    lost = ServerUnreachable("gone")
    result, done = drive(
        resize({"milli": 1000}, patience()),
        view(1000, attached=0, position=1),
        lost,
        lost,
        view(1000, instance="two", version=1),
    )
    assert result.instance == "two"
    assert [step.seconds for step in done if isinstance(step, Pause)] == [0.25, 0.5]


def test_server_gone_and_no_time_left() -> None:
    """A wait with a timeout does not outlive it because the server is gone."""
    mine = patience(0.05)
    mine.started -= 0.04
    with pytest.raises((ServerUnreachable, NoCapacity)):
        drive(settle(view(1000, attached=0), mine), *[ServerUnreachable("gone")] * 100_000)


def test_at_least_takes_and_gives_back() -> None:
    """From 1 GPU at least 3: two are taken, and after the block it is 1 again, all else of the wish kept."""
    ledger, block = Ledger(), object()
    before = view(1000, generation=4, priority=7)
    result, done = drive(take(3000, block, ledger, patience()), before, view(3000, generation=5, version=2, priority=7))
    assert result.status.attached == 3000
    assert calls(done)[1] == ("PUT", {"milli": 3000, "priority": 7, "generation": 4})
    _, done = drive(give_back(block, ledger), result, view(1000, generation=6))
    assert calls(done)[1] == ("PUT", {"milli": 1000, "priority": 7, "generation": 5})


def test_at_least_has_enough() -> None:
    """Nothing is written where enough is there, neither before nor after."""
    ledger, block = Ledger(), object()
    _, done = drive(take(1000, block, ledger, patience()), view(2000))
    assert calls(done) == [("GET", None)]
    _, done = drive(give_back(block, ledger), view(2000))
    assert calls(done) == [("GET", None)]


def test_at_least_does_not_start() -> None:
    """Time is over before all are there: what was asked for is withdrawn, and the error is the wait's."""
    ledger, block = Ledger(), object()
    waiting = view(2000, attached=1000, generation=2, position=1)
    script = (view(1000), waiting, waiting, view(1000, generation=3))
    done: list[Call | Pause] = []
    with pytest.raises(NoCapacity):
        drive(take(2000, block, ledger, patience(0)), *script, into=done)
    assert calls(done)[-1] == ("PUT", {"milli": 1000, "generation": 2})


def test_at_least_withdraws_after_ctrl_c() -> None:
    """The block did not begin, so nothing would ever give back: Ctrl-C withdraws, unlike in resize."""
    ledger, block, mine = Ledger(), object(), patience()
    waiting = view(1000, attached=0, generation=2, position=1)
    steps = take(1000, block, ledger, mine)
    next(steps)
    steps.send(view(0))
    steps.send(waiting)
    withdraw_look = steps.throw(KeyboardInterrupt())
    assert isinstance(withdraw_look, Call)
    put = steps.send(waiting)
    assert isinstance(put, Call)
    assert put.body == {"milli": 0, "generation": 2}
    with pytest.raises(KeyboardInterrupt):
        steps.send(view(0, generation=3))
    assert isinstance(mine.progress, Recorder)
    assert "withdrawn" in mine.progress.said[0]


def test_at_least_looks_again_after_a_race() -> None:
    """Somebody changed the wish between the look and the write: look again, take what is missing then."""
    ledger, block = Ledger(), object()
    _, done = drive(
        take(2000, block, ledger, patience()),
        view(0),
        StaleGeneration(current=1),
        view(1000, generation=1),
        view(2000, generation=2),
    )
    assert calls(done)[-1] == ("PUT", {"milli": 2000, "generation": 1})
    _, done = drive(give_back(block, ledger), view(2000, generation=2), view(1000, generation=3))
    assert calls(done)[-1] == ("PUT", {"milli": 1000, "generation": 2})


def test_shares_that_do_not_divide() -> None:
    """A wish for halves is kept where the new amount is made of halves, and dropped where it is not."""
    assert with_amount(view(1000, each=500), 2000) == {"milli": 2000, "each": 500}
    assert with_amount(view(1000, each=500), 1250) == {"milli": 1250}
    assert with_amount(view(0), 1000) == {"milli": 1000}


def test_holders_are_named_once() -> None:
    """A process with two GPUs open is one holder."""
    user = User(1, "python")
    assert holders(view(0, generation=2, draining=(0, 1), users=(user,))) == (user,)


@given(st.integers(0, 4000), st.lists(st.integers(0, 4000), max_size=6))
def test_nested_blocks_end_where_they_began(start: int, levels: list[int]) -> None:
    """Whatever is nested, the wish before is the wish after."""
    ledger, requested, blocks = Ledger(), start, []
    for level in levels:
        block = object()
        took = max(0, level - requested)
        requested += took
        ledger.enter(block, level, took)
        blocks.append(block)
    for block in reversed(blocks):
        requested -= ledger.leave(block, requested)
    assert requested == start


class Blocks(RuleBasedStateMachine):
    """Blocks that begin and end in any order, as threads and tasks do."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.start = self.requested = 1000
        self.open: dict[object, int] = {}

    @rule(level=st.integers(0, 4000))
    def begin(self, level: int) -> None:
        """A block takes what is missing."""
        block, took = object(), max(0, level - self.requested)
        self.requested += took
        self.ledger.enter(block, level, took)
        self.open[block] = level

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """Any of them ends."""
        block = data.draw(st.sampled_from(sorted(self.open, key=id)))
        del self.open[block]
        self.requested -= self.ledger.leave(block, self.requested)

    @invariant()
    def every_open_block_has_enough(self) -> None:
        """No block loses what it needs because another one ended."""
        assert self.requested >= max(self.open.values(), default=0)

    @invariant()
    def nothing_is_left_over(self) -> None:
        """When all have ended, the wish is what it was."""
        if not self.open:
            assert self.requested == self.start


TestBlocks = Blocks.TestCase
TestBlocks.__doc__ = "Blocks that begin and end in any order."
