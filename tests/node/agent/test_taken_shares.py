"""Shares that were taken away, over restarts of the node plugin and new wishes."""

from __future__ import annotations

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.metrics import Metrics
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.agent.sharing.taken_shares import STOPPED, TAKEN, TakenShares
from jupyter_gpu_node.kubelet.rules.slots import PodRef

GPU = "GPU-1"
POD = PodRef("u", "team", "alice")


def view(generation: int, milli: int = 250, *, problem: str = "") -> PodView:
    """Return the view of a pod that was given a share."""
    given = Allocated(generation, (GpuShare(GPU, milli),))
    return PodView(POD, allocated=None if problem else given, problem=problem)


class World:
    """One pod, and the reports about it."""

    def __init__(self) -> None:
        self.member = ManagedPod("u")
        self.told: list[tuple[PodRef, str, str]] = []
        self.taken = TakenShares(lambda: {"u": self.member}, lambda *what: self.told.append(what), Metrics())


def test_revocation_is_reported_once_and_ends_with_a_new_decision() -> None:
    """An Event, and the pod takes a step; another decision ends it, one that cannot be read does not."""
    world = World()
    world.member.view = view(3)
    for _ in range(2):
        world.taken.add(GPU, "u", "It was late.")
    assert world.told == [(POD, TAKEN, f"GPU {GPU}: It was late.")]
    assert world.member.wake.is_set()
    assert world.taken.of("u") == {GPU: "It was late."}
    world.member.view = view(3, problem="It cannot be read.")
    assert world.taken.of("u") == {GPU: "It was late."}
    for again in (view(4), view(3, 500)):
        world.member.view = again
        assert world.taken.of("u") == {}
        assert world.taken.known == {(GPU, "u")}, "Until its violations are forgotten."
    world.taken.forgive(world.taken.known)
    world.member.view = view(3)
    assert world.taken.of("u") == {}


def test_revocation_of_an_earlier_process_stays() -> None:
    """It is not reported again; it holds for the decision that was in force then, whatever is recorded afterwards."""
    world = World()
    world.taken.restoring = True
    world.taken.add(GPU, "u", "It was late.")
    world.taken.restoring = False
    assert world.taken.of("u") == {GPU: "It was late."}, "Nothing is known of the pod yet."
    world.member.view, world.member.attached = view(3), Attached(3)
    assert world.taken.of("u") == {GPU: "It was late."}
    world.member.view, world.member.attached = view(4), Attached(4)
    assert world.taken.of("u") == {}
    assert world.told == []


def test_stopped_share_is_reported_and_counted() -> None:
    """Nothing is reported for a pod that is gone, and nothing of it stays."""
    world = World()
    world.member.view = view(3)
    world.taken.stopped(GPU, "u", "Stopped until its next turn.")
    assert world.told == [(POD, STOPPED, f"GPU {GPU}: Stopped until its next turn.")]
    world.taken.add(GPU, "gone", "It was late.")
    world.taken.forget("gone")
    assert world.taken.known == frozenset()
