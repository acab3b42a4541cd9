"""The steps of `resize` and `at_least`: pure generators, driven by scripted answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from jupyter_gpu.kernel.client import Call
from jupyter_gpu.kernel.waiting import Patience, Pause, Steps, holders, resize, take, wait_settled
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
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.view import GpuUser, View
from jupyter_gpu.model.workers import SELF, ChildProcess, Worker, worker
from tests.kernel.builders import view


@dataclass
class Recorder:
    """A progress that records its calls."""

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
    return Patience(timeout, Recorder(), lambda _: (Worker(1, SELF),) if itself else ())


def drive(
    steps: Steps, *answers: View | BaseException, into: list[Call | Pause] | None = None
) -> tuple[View, list[Call | Pause]]:
    """Answer each call in turn, skipping pauses; return the result and the calls (also ``into`` a list)."""
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
    """One call suffices if the answer already is what was wanted; there is no progress bar."""
    mine = patience()
    result, done = drive(resize({"milli": 1000}, mine), view(1000))
    assert calls(done) == [("PUT", {"milli": 1000})]
    assert result.status.attached == 1000
    assert isinstance(mine.progress, Recorder)
    assert mine.progress.shown == []


def test_no_wait_returns_the_first_answer() -> None:
    """This holds whatever the answer is."""
    result, done = drive(resize({"milli": 2000}, None), view(2000, attached=0, position=2))
    assert len(done) == 1
    assert not result.status.settled


def test_waits_until_the_request_is_fulfilled() -> None:
    """It asks for views that are newer than the last one."""
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


def test_timeout_in_line_is_no_capacity() -> None:
    """NoCapacity has what is there and the place in line; the request stands, so nothing is written."""
    with pytest.raises(NoCapacity) as caught:
        drive(resize({"milli": 3000}, patience(0)), view(3000, attached=1000, position=2))
    assert (caught.value.have, caught.value.queue) == (1000, 2)


def test_timeout_while_draining_names_the_holder() -> None:
    """Draining names the process that has the GPU open."""
    user = GpuUser(99, "python", kernel="k", notebook="work/analysis.ipynb")
    with pytest.raises(Draining, match=r"analysis\.ipynb") as caught:
        drive(resize({"milli": 0}, patience(0)), view(0, generation=2, draining=(0,), users=(user,)))
    assert caught.value.holders == [user.to_json()]


def test_timeout_while_attaching_is_backend_unavailable() -> None:
    """A server that decided but does not attach is neither full nor draining."""
    with pytest.raises(BackendUnavailable, match="request stands"):
        drive(wait_settled(view(1000, attached=0, seen=False), patience(0)))


def test_own_open_gpu_is_an_error_at_once() -> None:
    """This process has the GPU open that it gives back: the error names the two ways out."""
    user = GpuUser(1, "python")
    with pytest.raises(Draining, match=r"itself still has GPU 1 open.*restart this kernel.*gpu\.resize\(2\)"):
        drive(resize({"milli": 1000}, patience(itself=True)), view(1000, generation=2, draining=(1,), users=(user,)))


def test_nvml_that_keeps_the_gpu_open_is_named() -> None:
    """With the reason, as no cell that the user remembers has used the GPU."""
    mine = patience(itself=True)
    mine.nvml_refusal = lambda: "a thread runs code of wandb.gpu"
    drains = view(1000, generation=2, draining=(1,), users=(GpuUser(1, "python"),))
    with pytest.raises(Draining, match=r"NVML that has it open.*now: a thread runs code of wandb\.gpu\. There are two"):
        drive(resize({"milli": 1000}, mine), drains)


def test_own_workers_are_an_error_soon() -> None:
    """They wait for this process. Workers that were just told to end have a moment; then the error says what to do."""
    mine = patience()
    loader = worker(ChildProcess(7, "pt_data_worker", ("python",), forked=True), ())
    mine.own_holders = lambda _: (loader,)
    drains = view(0, generation=2, draining=(0,), users=(GpuUser(7, "python"),))
    steps = resize({"milli": 0}, mine)
    next(steps)
    again = steps.send(drains)
    assert isinstance(again, Call)
    assert again.path.endswith("timeout=0.250")
    assert mine.suspected is not None
    mine.suspected -= 2
    with pytest.raises(Draining, match=r"DataLoader worker \(process 7\).*del loader.*gpu\.resize\(1\)"):
        steps.send(drains)


def test_ending_workers_are_no_error() -> None:
    """They were about to end."""
    mine = patience()
    answers = iter([(worker(ChildProcess(7, "python", ("python",), forked=True), ()),), (), ()])
    mine.own_holders = lambda _: next(answers)
    drains = view(0, generation=2, draining=(0,))
    result, _ = drive(resize({"milli": 0}, mine), drains, drains, view(0, generation=2, version=2))
    assert result.status.draining == 0


def test_own_program_is_waited_for() -> None:
    """It may end by itself: it is waited for, and named once."""
    mine = patience()
    program = worker(ChildProcess(7, "train", ("./train",)), ())
    mine.own_holders = lambda _: (program,)
    drains = view(0, generation=2, draining=(0,))
    drive(resize({"milli": 0}, mine), drains, drains, view(0, generation=2, version=2))
    assert isinstance(mine.progress, Recorder)
    (said,) = mine.progress.said
    assert "a program that you started here (process 7)" in said
    assert "process.terminate()" in said


def test_other_holder_is_waited_for() -> None:
    """Another process may close the GPU at any time."""
    other = GpuUser(2, "python")
    first = view(0, generation=2, draining=(0,), users=(other,))
    result, _ = drive(resize({"milli": 0}, patience()), first, view(0, generation=2, version=2))
    assert result.status.draining == 0


def test_changed_request_ends_the_wait() -> None:
    """A wait for a request that no longer stands would never end."""
    with pytest.raises(StaleGeneration, match="changed to 3 GPUs"):
        drive(
            resize({"milli": 2000}, patience()),
            view(2000, attached=0, generation=4),
            view(3000, attached=0, generation=5, version=2),
        )


@pytest.mark.parametrize(("reason", "error"), [(Reason.LIMIT_EXCEEDED, LimitExceeded), (Reason.INFEASIBLE, Infeasible)])
def test_later_refusal_ends_the_wait(reason: Reason, error: type[GpuError]) -> None:
    """The scheduler's own error is raised."""
    with pytest.raises(error):
        drive(wait_settled(view(2000, attached=0, reason=reason), patience()))


def test_users_limit_ends_the_wait() -> None:
    """GPUs above the limit are not waited for: the error says that the request stands, and until when."""
    two = PodLimit(2000, 2000, Source(SourceKind.GROUP, "ml", "root", 1777800000))
    with pytest.raises(LimitExceeded) as caught:
        drive(wait_settled(view(3000, attached=2000, limit=2000, of_user=two), patience()))
    assert str(caught.value) == (
        "Your limit is 2 GPUs, set for group ml by root on 3 May. The request for 3 GPUs stands: the rest comes when "
        "that allows it; gpu.resize(2) asks for no more."
    )
    mine = patience()
    fewer = view(2000, attached=1000, limit=2000, of_user=two, position=1)
    result, _ = drive(wait_settled(fewer, mine), view(2000, version=2, limit=2000, of_user=two))
    assert result.status.attached == 2000  # room within the limit is waited for


def test_ctrl_c_keeps_the_request() -> None:
    """KeyboardInterrupt is raised again after a message with the current state; nothing is taken back."""
    mine = patience()
    with pytest.raises(KeyboardInterrupt):
        drive(resize({"milli": 2000}, mine), view(2000, attached=0, position=1), KeyboardInterrupt())
    assert isinstance(mine.progress, Recorder)
    assert "the request for 2 GPUs stands" in mine.progress.said[0]
    assert "gpu.release() cancels it" in mine.progress.said[0]


def test_restarting_server_is_waited_for() -> None:
    """Its state is on disk."""
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


def test_timeout_holds_without_a_server() -> None:
    """A wait with a timeout does not outlive it because the server is gone."""
    mine = patience(0.05)
    mine.started -= 0.04
    with pytest.raises((ServerUnreachable, NoCapacity)):
        drive(wait_settled(view(1000, attached=0), mine), *[ServerUnreachable("gone")] * 100_000)


OWNER = ReservationOwner(1, 2, 3, "k")


def test_at_least_waits_until_enough_is_attached() -> None:
    """It sends one reservation under the client's key, and then asks for newer views."""
    mine = patience()
    result, done = drive(
        take("key", 3000, OWNER, mine),
        view(3000, attached=1000, base=1000, position=1),
        view(3000, base=1000, generation=1, version=2),
    )
    assert result.status.attached == 3000
    assert calls(done) == [("PUT", {"milli": 3000, "owner": OWNER.to_json()}), ("GET", None)]
    assert isinstance(done[0], Call)
    assert done[0].path == "reservations/key"
    assert isinstance(mine.progress, Recorder)
    assert mine.progress.closed == 1


def test_at_least_timeout_raises_the_waits_error() -> None:
    """Giving back is the caller's part."""
    with pytest.raises(NoCapacity):
        drive(take("key", 2000, OWNER, patience(0)), view(2000, attached=1000, generation=2, position=1))


def test_at_least_overruled_while_waiting() -> None:
    """A user took it back in the panel meanwhile."""
    with pytest.raises(StaleGeneration, match="changed to 1 GPU meanwhile; 2 GPUs must stay here"):
        drive(take("key", 2000, OWNER, patience()), view(2000, attached=0), view(1000, generation=2, version=2))


def test_at_least_says_that_ctrl_c_withdraws() -> None:
    """Unlike in resize, nothing stands."""
    mine = patience()
    with pytest.raises(KeyboardInterrupt):
        drive(take("key", 1000, OWNER, mine), view(1000, attached=0), KeyboardInterrupt())
    assert isinstance(mine.progress, Recorder)
    assert "withdrawn" in mine.progress.said[0]


def test_at_least_asks_a_restarted_server_again() -> None:
    """It knows no reservations."""
    _, done = drive(
        take("key", 1000, OWNER, patience()),
        view(1000, attached=0),
        view(0, instance="two"),
        view(1000, instance="two", base=0),
    )
    assert [step.path for step in done if isinstance(step, Call) and step.method == "PUT"] == ["reservations/key"] * 2


def test_other_blocks_do_not_end_a_wait() -> None:
    """A reservation that begins or ends changes the generation, but not the request."""
    result, _ = drive(
        resize({"milli": 2000}, patience()),
        view(2000, attached=0, generation=1),
        view(3000, attached=1000, base=2000, generation=2, version=2),
        view(2000, attached=1000, generation=3, version=3),
        view(2000, generation=3, version=4),
    )
    assert result.version == 4


def test_wait_ends_when_the_own_part_is_attached() -> None:
    """The rest belongs to another block."""
    waiting = view(4000, attached=2000, base=2000, generation=2, version=2, position=1)
    result, _ = drive(resize({"milli": 2000}, patience()), view(2000, attached=1000, generation=1), waiting)
    assert result == waiting


def test_holder_is_named_once() -> None:
    """A process with two GPUs open is one holder."""
    user = GpuUser(1, "python")
    assert holders(view(0, generation=2, draining=(0, 1), users=(user,))) == (user,)
