"""The files of time shares as a backend reads them: checked, no link followed, and what is bad costs itself alone."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends import share_files
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.shares.rules.share_file import ShareFile
from jupyter_gpu_node.shares.server.store import ShareEntry, ShareStore

GPU, OTHER = "GPU-1", "GPU-2"
WRITTEN = 1_700_000_000_000
SHARE = ShareUse(
    uuid=GPU, allocated=250, effective=400, guaranteed=9_000_000, borrowed=800_000, idle=70_000, overrun=600,
    switching=5_000, waited=400_000, throttled=30_000, lost=2_000, balance=1_200_000, cap=2_000_000,
    expires=17_000_000, sharing=2, period=100_000, busy=0.93, reason="Grew by what others do not use.",
    memory_used=2**30, memory_limit=2**31,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the files of two shares, as the node writes them."""
    entries = [
        ShareEntry(gpu, "pod", tmp_path, ShareFile(replace(SHARE, uuid=gpu), 0.5, WRITTEN), (), 0)
        for gpu in (GPU, OTHER)
    ]
    assert ShareStore(tmp_path / "state").write(entries)
    return tmp_path / "shares"


def test_files_of_the_node_are_read(folder: Path) -> None:
    """Only shares that are asked for are read; one that has no file yet, or can have none, is left out."""
    assert share_files.read(folder, [GPU], WRITTEN) == {GPU: SHARE}
    found = share_files.read(folder, [GPU, OTHER, "GPU-3", "../state", "a/b", "", "ä" * 99], WRITTEN)
    assert found == {GPU: SHARE, OTHER: replace(SHARE, uuid=OTHER)}


def test_a_pod_without_shares(tmp_path: Path) -> None:
    """It has no folder for them, and nothing is said of it."""
    assert share_files.read(tmp_path / "shares", [GPU], WRITTEN) == {}


@pytest.mark.parametrize(("later", "left"), [(0, 17_000_000), (100, 16_900_000), (99_000, 0), (-5_000, 17_000_000)])
def test_expires_counts_from_now(folder: Path, later: int, left: int) -> None:
    """Also by a clock that was set back, where it is what it was."""
    assert share_files.read(folder, [GPU], WRITTEN + later)[GPU] == replace(SHARE, expires=left)


@pytest.mark.parametrize("change", [{"balance": 2_000_000}, {"balance": 0, "expires": None}])
def test_a_bank_that_stands_still(change: dict[str, Any]) -> None:
    """A full one is renewed as long as its file stays as it is; from an empty one nothing is lost."""
    share = replace(SHARE, **change)
    text = json.dumps(share.to_json() | {"written": WRITTEN, "use": 0})
    assert share_files.decode(text.encode(), GPU, WRITTEN + 3_600_000) == share


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another(path: Path) -> None:
    path.write_bytes((path.parent / f"{OTHER}.json").read_bytes())


def unstamped(path: Path) -> None:
    path.write_text(json.dumps(SHARE.to_json()))


def large(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" " * share_files.MAX_BYTES)


@pytest.mark.parametrize("spoil", [pipe, link, directory, another, unstamped, large, lambda path: path.write_text("{")])
def test_invalid_file_affects_only_itself(
    folder: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    """One line in the log for as long as it is bad; then it counts again."""
    path = folder / f"{GPU}.json"
    text = path.read_bytes()
    spoil(path)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert list(share_files.read(folder, [GPU, OTHER], WRITTEN)) == [OTHER]
    assert [f"GPU {GPU}" in record.getMessage() for record in caplog.records] == [True]
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(text)
    assert share_files.read(folder, [GPU], WRITTEN) == {GPU: SHARE}
    path.write_bytes(b"")
    assert share_files.read(folder, [GPU], WRITTEN) == {}
    assert len(caplog.records) == 2


def test_the_folder_is_no_link(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor a file: nothing is read then, and that is said once."""
    moved = folder.rename(folder.with_name("moved"))
    folder.symlink_to(moved)
    for _ in range(2):
        assert share_files.read(folder, [GPU], WRITTEN) == {}
    assert len(caplog.records) == 1


@given(st.binary(max_size=300))
def test_garbage_is_no_share(text: bytes) -> None:
    """Never another error."""
    with pytest.raises(FieldError):
        share_files.decode(text, GPU, 0)


def test_partial_file_is_ignored() -> None:
    """Wherever it ends: the node never leaves one, but a disk may."""
    text = json.dumps(SHARE.to_json() | {"written": WRITTEN}).encode()
    for cut in range(len(text)):
        with pytest.raises(FieldError):
            share_files.decode(text[:cut], GPU, WRITTEN)
