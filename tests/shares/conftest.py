"""Fixtures that several tests of sharing need."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shares.enforcing import Running
from tests.shares.serve import Serving
from tests.shares.world import GPU


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    """Two shares of one GPU."""
    with Serving(tmp_path) as found:
        found.set({GPU: {"a": 500, "b": 500}})
        yield found


@pytest.fixture
def running(short: Path) -> Iterator[Running]:
    """Programs, which end before the folder goes."""
    with Running() as found:
        yield found


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(prefix="b") as folder:
        yield Path(folder)
