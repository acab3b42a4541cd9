"""Fixtures of the tests of backends."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.gpus import simulated
from tests.devices import first_minor

from .stage import Nursery, Stage


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few pages, to be filled."""
    place = tmp_path / "tiny"
    place.mkdir()
    # Space for some pages and for enough inodes, so that bytes run out and not names.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=200", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder whose path is short enough for the addresses of sockets, and that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="jg-") as name:
        Path(name).chmod(0o1777)
        yield Path(name)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """The nursery that starts the processes."""
    made = Nursery()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def stage(nursery: Nursery, short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A machine of its own with three simulated GPUs."""
    monkeypatch.setattr(simulated, "FIRST_MINOR", first_minor())
    made = Stage(nursery, short_tmp / "state")
    try:
        yield made
    finally:
        made.end()
