"""Restarts of a node, and of a whole cluster after a power cut: no grant goes astray."""

import pytest

from tests.cluster.testbed import until
from tests.cluster.whole import pods
from tests.cluster.whole.states import PodState
from tests.cluster.whole.world import SECONDS, World
from tests.deploy import product as chart

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]
LONG = 3 * SECONDS
"""Everything starts at once on two busy cores, and a kubelet waits longer each time before it starts a container."""


def settled(corner: World, before: PodState) -> PodState:
    """Return the state of a pod on a restarted node: it runs with its GPUs, or the kubelet has refused it.

    A kubelet that starts looks at its pods before the node plugin is there again, and ends those whose slot is not.
    """

    def condition() -> PodState | None:
        state = corner.pod(before.name)
        again = state.restarts > before.restarts and corner.satisfied(state.name)
        return state if again or state.phase == "Failed" else None

    found = corner.until(condition, f"{before.name} to run again or to be refused", LONG)
    assert found
    print(f"{found.name}: {found.phase} {found.ended}")
    if found.phase != "Failed":
        assert found.granted == before.granted
        opens_its_own(corner, found.name)
    else:
        corner.until(lambda: not _has(corner.pod(found.name)), f"{found.name} to have nothing and to hold nothing back")
    return found


def _has(state: PodState) -> bool:
    return bool(state.attached and (state.attached.shares or state.attached.draining))


def opens_its_own(corner: World, name: str) -> None:
    """The GPUs that it has, and no other of its node."""
    state = corner.pod(name)
    own = {corner.path_of(uuid) for uuid in state.usable}
    assert {path for path in corner.devices(state.node) if corner.opens(name, path)} == own


def complete(corner: World) -> bool:
    """Whether every part of the product is ready."""
    return corner.product.ready and all(
        container.get("ready")
        for part in ("node", "scheduler", "kube-scheduler")
        for pod in corner.product.component(part)
        for container in pod["status"].get("containerStatuses") or [{}]
    )


def all_can_be_given_away(corner: World) -> None:
    """Check that a new pod on each node gets every free GPU."""
    held = dict.fromkeys(corner.cluster.node_names, 0)
    for state in corner.history.pods():
        if state.phase == "Running":
            held[state.node] += len(state.usable)
    new = {f"new-{node}": (node, chart.GPUS - count) for node, count in held.items()}
    corner.create(*(pods.pod(name, wants=count, node=node) for name, (node, count) in new.items()))
    for name, (_, count) in new.items():
        corner.has(name, 1000 * count)
        opens_its_own(corner, name)


def test_restarted_node_gives_every_gpu_again(corner: World) -> None:
    """Its pods come back with their GPUs or are refused; the other node's go on; every GPU can be given again."""
    corner.run(
        pods.pod("some", wants=2, node=corner.one),
        pods.pod("none", node=corner.one),
        pods.pod("beside", wants=1, node=corner.two),
    )
    before = [corner.pod(name) for name in ("some", "none")]
    node = corner.cluster.node(corner.one)
    node.power_off()
    node.start("kubelet")
    for state in before:
        settled(corner, state)
    until(lambda: complete(corner), LONG, "the product to be whole again")
    assert corner.pod("beside").restarts == 0
    opens_its_own(corner, "beside")
    all_can_be_given_away(corner)


def test_cluster_recovers_from_a_power_cut(corner: World) -> None:
    """Control plane and both nodes without power: all comes back by itself, in whatever order."""
    corner.run(*(pods.pod(f"on-{node}", wants=2, node=node) for node in corner.cluster.node_names))
    before = corner.history.pods()
    for part in corner.cluster.parts:
        if "@" not in part:
            corner.cluster.kill(part)
    for node in corner.cluster.nodes:
        node.power_off()
    corner.cluster.up()
    for state in before:
        settled(corner, state)
    until(lambda: complete(corner), LONG, "the product to be whole again")
    all_can_be_given_away(corner)
