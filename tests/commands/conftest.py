"""A real server for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.servers import Server, await_, serve_soft


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start one server for the module, in soft mode."""
    with serve_soft(tmp_path_factory) as running:
        yield running


@pytest.fixture
def give_back(server: Server) -> Iterator[None]:
    """Give back all GPUs after each test."""
    yield
    server.gpus(0)
    await_(lambda: server.status()["phase"] == "Idle")
