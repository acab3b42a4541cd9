"""The node plugin dies at one of its steps, in the middle of what goes on: a file tells it where."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu_node.agent import agent
from tests.cluster.testbed import until
from tests.cluster.testbed.node import Node
from tests.cluster.whole import pods
from tests.cluster.whole.world import SECONDS, Product, World
from tests.deploy import product as chart

SAYS = "agent:said"
"""The step that is taken only for a server or a worker that starts."""
STEPS = tuple(point for point in agent.POINTS if point != SAYS)
"""All but that one."""
FILE = "/var/lib/jupyter-gpu/die-at"
"""On each node, and in the node plugin's container."""
STARTS = "agent:closed"
"""The step that is taken only for a pod that starts."""


@contextmanager
def mortal(product: Product) -> Iterator[None]:
    """Node plugins that look for the file; at the end they are again as they were installed."""
    _roll_out(product, f"{faults.VARIABLE}=@{FILE}")
    try:
        yield
    finally:
        for node in product.cluster.nodes:
            node.path(FILE).unlink(missing_ok=True)
        _roll_out(product, f"{faults.VARIABLE}-")


def _roll_out(product: Product, variable: str) -> None:
    """Start the node plugins with this variable; one after the other, as at an upgrade."""
    about = ("daemonset/jupyter-gpu-node", "--namespace", chart.NAMESPACE)
    product.cluster.kubectl("set", "env", *about, variable)
    product.cluster.kubectl("rollout", "status", *about, f"--timeout={SECONDS:.0f}s", seconds=SECONDS + 10)


def death(
    step: str, cause: Callable[[World, Node], None] | None = None, number: int | None = None
) -> Callable[[World, random.Random], None]:
    """The node plugin of a node is killed when it gets there. ``cause`` makes it, ``number`` chooses the node."""

    def fault(corner: World, chance: random.Random) -> None:
        nodes = corner.cluster.nodes
        node = chance.choice(nodes) if number is None else nodes[number]
        file = node.path(FILE)
        file.write_text(step)
        if step == STARTS:
            corner.create(pods.pod(f"new-{len(corner.history.moments)}", node=node.name))
        if cause is not None:
            cause(corner, node)
        try:
            until(lambda: not file.exists(), SECONDS, f"the node plugin of {node.name} to get to {step}")
        finally:
            file.unlink(missing_ok=True)
        if any(_restarts(pod) for pod in _of(corner, node)):
            replace(corner, node)  # rather than wait for the back-off of its next restart

    return fault


def replace(corner: World, node: Node) -> None:
    """Delete the node plugin's pod of a node: another takes its place."""
    found = until(lambda: _of(corner, node), SECONDS, f"the node plugin's pod of {node.name}")
    names = [pod["metadata"]["name"] for pod in found or ()]
    corner.cluster.kubectl("delete", "pod", "-n", chart.NAMESPACE, *names, "--grace-period=1", "--wait=false")


def _of(corner: World, node: Node) -> list[dict[str, Any]]:
    return [pod for pod in corner.product.component("node") if pod["spec"].get("nodeName") == node.name]


def _restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
