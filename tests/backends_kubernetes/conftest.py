"""A real API server, on it a node with three GPUs, and beside it a real hub with its service."""

from collections.abc import Iterator

import pytest

from tests.backends_kubernetes.stage import Stage
from tests.cluster.testbed import ControlPlane, control_plane
from tests.hub_service import world as worlds
from tests.hub_service.world import World


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane() as made:
        yield made


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A hub with its service, and an API server of its own."""
    with worlds.running(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture(params=["token", "hub"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A namespace of its own, with the node's and the scheduler's part played by the real decisions.

    Servers write their requests with the tokens of their pods, or through the hub's service.
    """
    if request.param == "hub":
        world: World = request.getfixturevalue("hub")
        with Stage(world.plane, hub=world) as made:
            yield made
    else:
        with Stage(request.getfixturevalue("plane")) as made:
            yield made
