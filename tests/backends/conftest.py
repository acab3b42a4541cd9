"""Fixtures of the tests of backends."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


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
