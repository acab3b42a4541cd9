"""The gate is built once for all tests; each test has a GPU of its own."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .building import Built, build
from .place import Place, Program


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the gate without sanitizers."""
    return build(tmp_path_factory.mktemp("gate"))


@pytest.fixture
def short() -> Iterator[Path]:
    """Make a folder with a name short enough for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="g") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def programs_end() -> Iterator[None]:
    """Kill the programs that a failed test has left."""
    yield
    while Program.started:
        Program.started.pop().kill()


@pytest.fixture
def place(built: Built, short: Path) -> Place:
    """Return a place with the local form of the gate."""
    return Place(built, short)


@pytest.fixture(params=["local", "shim"])
def either(built: Built, short: Path, request: pytest.FixtureRequest) -> Place:
    """Return a place with each form of the gate."""
    return Place(built, short, request.param)
