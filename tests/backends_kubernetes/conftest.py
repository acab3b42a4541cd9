"""A real API server, and on it a node with three GPUs."""

from collections.abc import Iterator

import pytest

from tests.backends_kubernetes.stage import Stage
from tests.cluster.testbed import ControlPlane, control_plane


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane() as made:
        yield made


@pytest.fixture
def stage(plane: ControlPlane) -> Iterator[Stage]:
    """A namespace of its own, with the node's and the scheduler's part played by the real decisions."""
    with Stage(plane) as made:
        yield made
