"""Orders and needs in simulated time, in any order and with any fault: never two owners, and nothing stuck."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.parking import ParkCause
from jupyter_gpu_node.parking.rules.parking import Phase
from jupyter_gpu_node.shares.rules.framing import MOST

from .world import Pod, World

Act = Callable[[World, Pod], None]


def _kill(world: World, pod: Pod) -> None:
    world.kill(pod.gates[0])


def _disconnect(world: World, pod: Pod) -> None:
    if pod.gates[0].connection:
        pod.gates[0].disconnect()


def _restart(world: World, pod: Pod) -> None:
    if all(len(one.gates) == 1 for one in world.pods):
        world.restart()


ACTS: list[Act] = [
    World.order,
    lambda world, pod: world.order(pod, ParkCause.USER),
    lambda world, pod: pod.gates[0].need(True),
    lambda world, pod: pod.gates[-1].need(True),
    lambda world, pod: pod.gates[0].need(False),
    World.call_off,
    World.want,
    World.revoke,
    World.work,
    lambda world, pod: world.use(pod.gates[0]),
    _disconnect,
    _restart,
    _kill,
]
acts = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5), st.floats(0, 8)), max_size=60)


def _play(seed: int, processes: list[int], gpus: int, acts: list[tuple[Act, int, float]]) -> World:
    world = World(seed, processes, gpus)
    world.before = sum(pod.size * len(pod.gates) for pod in world.pods)
    for act, number, pause in acts:
        act(world, world.pods[number % len(world.pods)])
        world.check()
        world.run(pause)
    return world


def check_settled(world: World) -> None:
    """Check that nothing is stuck: what is needed is there, unless its GPU can never be freed."""
    for key, bundle in world.node.bundles.items():
        pod = next(pod for pod in world.pods if pod.name == key.pod)
        assert bundle.phase in (Phase.RUNNING, Phase.PARKED)
        assert bundle.phase is Phase.RUNNING or not bundle.needed or _barred(world, pod), (key, bundle.phase)
        assert not bundle.hangs
    for pod in world.pods:
        alive = [gate for gate in pod.gates if gate.alive]
        assert pod.allowed == (pod.attached and bool(alive))
        assert all(gate.step is None for gate in alive)
        assert not any(gate.needs for gate in alive) or _barred(world, pod)


def _barred(world: World, pod: Pod) -> bool:
    holder = world.owner[pod.gpu]
    return holder is not None and holder is not pod and world.unparkable(holder)


@pytest.mark.uncounted(after=60)
@settings(deadline=None)
@given(st.integers(0, MOST), st.lists(st.integers(1, 2), min_size=1, max_size=6), st.integers(1, 4), acts)
def test_never_two_owners_and_nothing_stuck(
    seed: int, processes: list[int], gpus: int, acts: list[tuple[Act, int, float]]
) -> None:
    """All that is needed and fits returns, and what is not needed ends its orders, once nothing fails any more."""
    world = _play(seed, processes, min(gpus, len(processes)), acts)
    world.settle()
    check_settled(world)


def test_parks_many_and_brings_them_back() -> None:
    """Without faults all that is ordered is parked, and all that is needed comes back, in turn on the same GPUs."""
    world = World(1, [1] * 6, 3)
    world.faults = False
    for pod in world.pods:
        world.order(pod)
    world.run(60)
    assert all(pod.parked for pod in world.pods)
    assert not any(world.owner.values())
    for pod in world.pods:
        pod.gates[0].need(True)
    world.settle()
    assert not any(gate.needs for pod in world.pods for gate in pod.gates)


def test_four_at_a_time() -> None:
    """Eight orders at once are parked by fours, in their order."""
    world = World(1, [1] * 8, 8)
    world.faults = False
    for pod in world.pods:
        pod.size = 2**20
        world.order(pod)
    world.run(0.9)
    phases = [bundle.phase for bundle in world.node.bundles.values()]
    assert phases.count(Phase.QUEUED) == 4
    assert all(phase is not Phase.QUEUED for phase in phases[:4])
    world.run(60)
    assert all(pod.parked for pod in world.pods)
