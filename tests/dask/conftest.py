"""A server for the tests of Dask's clients and pages."""

from collections.abc import Iterator

import pytest

from tests.kernel.servers import Server, serve_soft


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        yield running
