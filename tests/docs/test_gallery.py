"""Every example notebook runs from its first cell to its last, and prints what the site shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import gallery
from tests.kernel.servers import Server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Run the gallery's server and its neighbour's."""
    with gallery.servers(tmp_path_factory.mktemp("gallery")) as pair:
        yield pair


@pytest.mark.parametrize("path", gallery.notebooks(), ids=lambda path: path.stem)
def test_notebook_prints_the_stored_output(path: Path, servers: tuple[Server, Server]) -> None:
    """No cell fails and no GPU is kept. `scripts/docs --run` stores new outputs."""
    server, neighbour = servers
    neighbour.gpus(0)
    try:
        assert gallery.run(path, server, neighbour) == gallery.stored(path)
        assert server.status()["amounts"]["attached"] == 0
    finally:
        server.gpus(0)


def test_index_names_every_notebook() -> None:
    """The table names no notebook that does not exist."""
    index = (gallery.FOLDER / "index.md").read_text(encoding="utf-8")
    assert sorted(f"({path.name})" in index for path in gallery.notebooks()) == [True] * len(gallery.notebooks())
    assert index.count(".ipynb)") == len(gallery.notebooks()) + 1, "and the demo"
