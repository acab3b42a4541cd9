"""One hub and service without a cluster for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import world as worlds
from .world import MachineWorld


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MachineWorld]:
    """Return the world, which all tests of a file share."""
    with worlds.running(tmp_path_factory.mktemp("hub-machine")) as world:
        yield world
