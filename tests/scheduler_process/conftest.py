"""One control plane for all files that a worker runs one after another; a stage of its own for each test."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.testbed import ControlPlane, control_plane
from tests.scheduler_process.stage import Loop, Stage

_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane() as made:
        yield made


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    """An event loop beside the tests."""
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def stage(plane: ControlPlane, loop: Loop, tmp_path: Path) -> Iterator[Stage]:
    """Return an empty stage; check at the end that no pod ever had a GPU that was another's."""
    plane.restore()
    made = Stage(plane, loop, tmp_path, f"s{next(_numbers)}")
    yield made
    made.close()
    assert not made.watcher.attached_twice
