"""One hub, service and API server for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import world as worlds
from .world import World


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Return the world, which all tests of a file share."""
    with worlds.running(tmp_path_factory.mktemp("hub-service")) as world:
        yield world


@pytest.fixture
def world(running: World) -> Iterator[World]:
    """Return the world without limits."""
    running.clear()
    yield running
    running.clear()
