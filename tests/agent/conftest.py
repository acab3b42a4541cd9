"""One API server for all tests of the agent, and a node for each module."""

from collections.abc import Iterator

import pytest

from tests.agent.stage import Api, Node
from tests.cluster.testbed import ControlPlane, control_plane


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane(
        flags={"apiserver": ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"]}
    ) as made:
        yield made


@pytest.fixture(scope="package")
def api(plane: ControlPlane) -> Iterator[Api]:
    """Its client."""
    made = Api(plane.kubeconfig)
    yield made
    made.close()


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, api: Api) -> Iterator[Node]:
    """A node whose plugin runs."""
    made = Node(plane, api)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def node(machine: Node) -> Iterator[Node]:
    """The same, without pods and with its plugin running before and after each test."""
    machine.plane.restore()
    if machine.process is None or machine.process.poll() is not None:
        machine.start()
    yield machine
    if machine.process is None:
        machine.start()
    machine.clear()


@pytest.fixture(scope="module")
def resting(plane: ControlPlane, api: Api) -> Iterator[Node]:
    """A node whose plugin does not run."""
    made = Node(plane, api)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def quiet(resting: Node) -> Iterator[Node]:
    """The node, with no plugin of its own running."""
    resting.plane.restore()
    yield resting
    resting.stop()
    resting.clear()
