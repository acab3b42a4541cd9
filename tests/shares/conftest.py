"""A server with two shares."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shares.serve import Serving
from tests.shares.world import GPU


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    """Two shares of one GPU."""
    with Serving(tmp_path) as found:
        found.set({GPU: {"a": 500, "b": 500}})
        yield found
