"""Checks before anything is touched: what is not known is an obstacle."""

from __future__ import annotations

import pytest

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.parking import Obstacle
from jupyter_gpu_node.parking.rules.bundles import Bundle
from jupyter_gpu_node.parking.rules.checks import GpuFacts, ProcessFacts, Refusal, answered, failed, refusal
from jupyter_gpu_node.parking.rules.messages import Ability, Cannot, Failed, Hello, Reason, State, Step
from jupyter_gpu_node.processes.rules.process_id import ProcessId

ONE, TWO = ProcessId(1, 1), ProcessId(2, 2)
GOOD = GpuFacts(580, True, False)
HOLDER = Holder(1, "python")
ABLE = Hello(13000, Ability.PARK | Ability.SHUT, 1)
FINE = ProcessFacts(HOLDER, ABLE, State.RUNNING)


def _refusal(gpu: GpuFacts = GOOD, process: ProcessFacts = FINE, machine: str = "x86_64") -> Refusal | None:
    return refusal(Bundle((ONE,), ("a",)), {"a": gpu}, {ONE: process}, machine)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        (GOOD, None),
        (GpuFacts(579, True, False), Obstacle.DRIVER),
        (GpuFacts(None, True, False), Obstacle.DRIVER),
        (GpuFacts(580, False, False), Obstacle.PERSISTENCE),
        (GpuFacts(580, None, False), Obstacle.PERSISTENCE),
        (GpuFacts(580, True, True), Obstacle.PARTITION),
        (GpuFacts(580, True, None), Obstacle.PARTITION),
    ],
)
def test_gpu_is_checked(gpu: GpuFacts, why: Obstacle | None) -> None:
    """Its driver, its persistence mode, its division."""
    found = _refusal(gpu)
    assert (found and found.why) == why


def test_processor_is_checked() -> None:
    """The driver of another processor began later, or never."""
    old = _refusal(GpuFacts(594, True, False), machine="aarch64")
    assert old
    assert old.why == Obstacle.DRIVER
    assert _refusal(GpuFacts(595, True, False), machine="aarch64") is None
    other = _refusal(machine="riscv64")
    assert other
    assert other.why == Obstacle.DRIVER


@pytest.mark.parametrize(
    ("process", "expected"),
    [
        (ProcessFacts(HOLDER), Refusal(Obstacle.NO_GATE, holders=(HOLDER,))),
        (ProcessFacts(HOLDER, Hello(13000, Ability.PARK, 1)), Refusal(Obstacle.NO_GATE, holders=(HOLDER,))),
        (ProcessFacts(HOLDER, Hello(12000, Ability.SHUT, 1)), Refusal(Obstacle.DRIVER)),
        (ProcessFacts(HOLDER, ABLE, State.BROKEN), Refusal(Obstacle.BROKEN)),
        (ProcessFacts(HOLDER, ABLE, State.LOST), Refusal(Obstacle.BROKEN)),
        (ProcessFacts(HOLDER, ABLE, State.PARKING), Refusal(Obstacle.HANGS)),
        (ProcessFacts(HOLDER, ABLE), Refusal(Obstacle.HANGS)),
        (FINE, None),
    ],
)
def test_process_is_checked(process: ProcessFacts, expected: Refusal | None) -> None:
    """It has a gate that is able to, and runs."""
    assert _refusal(process=process) == expected


@pytest.mark.parametrize(("processes", "gpus"), [((ONE, TWO), ("a",)), ((ONE,), ("a", "b")), ((ONE, TWO), ("a", "b"))])
def test_several_are_parked_only_where_that_is_allowed(processes: tuple[ProcessId, ...], gpus: tuple[str, ...]) -> None:
    """A GPU of which nothing is known is an obstacle, too."""
    bundle, known, facts = Bundle(processes, gpus), {"a": GOOD, "b": GOOD}, {ONE: FINE, TWO: FINE}
    assert refusal(bundle, known, facts, "x86_64") == Refusal(Obstacle.SEVERAL)
    assert refusal(bundle, known, facts, "x86_64", several=True) is None
    assert refusal(bundle, {}, facts, "x86_64", several=True) == Refusal(Obstacle.DRIVER)


def test_answers_of_gates_are_words_of_the_wire() -> None:
    """Each has one; a newer gate's is told by its number."""
    assert {answered(Cannot(1, reason)).why for reason in Reason} <= set(Obstacle)
    assert answered(Cannot(1, Reason.SPACE, 7)) == Refusal(Obstacle.ADDRESS_SPACE, 7)
    assert answered(Cannot(1, 77)) == Refusal("gate-77")
    assert len(answered(Cannot(1, 2**64 - 1)).why) <= 32


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Failed(1, Step.LOCK, State.RUNNING, 600), Refusal(Obstacle.IN_USE)),
        (Failed(1, Step.DRAIN, State.RUNNING, 600), Refusal(Obstacle.IN_USE)),
        (Failed(1, Step.BLOCK, State.RUNNING, 801), Refusal(Obstacle.NO_GATE)),
        (Failed(1, Step.BLOCK, State.RUNNING, 0), Refusal(Obstacle.IN_USE)),
        (Failed(1, Step.CHECKPOINT, State.BROKEN, 801), Refusal(Obstacle.BROKEN, 801)),
    ],
)
def test_failures_are_words_of_the_wire(message: Failed, expected: Refusal) -> None:
    """Work that did not end in time is use."""
    assert failed(message) == expected
