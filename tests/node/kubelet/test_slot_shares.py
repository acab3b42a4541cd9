"""The view of its shares in the containers of a pod."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from jupyter_gpu_node.kubelet import slot_directories, slot_shares
from jupyter_gpu_node.shares.server import paths

GPU, OTHER = "GPU-1", "GPU-2"


@pytest.fixture
def slots(tmp_path: Path) -> tuple[Path, Path]:
    """Directories of two slots of a pod; the first has the socket and the file of a share."""
    first, second = tmp_path / "slot-0000", tmp_path / "slot-0001"
    for slot in (first, second):
        slot_directories.make(slot)
    paths.listen(first, GPU).close()
    (first / "shares" / f"{GPU}.json").write_text("{}")
    return first, second


def names(slot: Path) -> set[str]:
    """Return the names of the files of its shares."""
    return {path.name for path in (slot / "shares").iterdir()}


def test_the_second_container_has_the_same_socket_and_file(slots: tuple[Path, Path]) -> None:
    """A client that connects there reaches the same server, also when the socket is made anew."""
    first, second = slots
    slot_shares.show(first, [second], [GPU])
    assert names(second) == {f"{GPU}.sock", f"{GPU}.json"}
    for _ in range(2):
        with paths.listen(first, GPU) as listening:
            slot_shares.show(first, [second], [GPU])
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(second / "shares" / f"{GPU}.sock"))
                listening.accept()[0].close()


def test_unchanged_share_is_left_alone(slots: tuple[Path, Path]) -> None:
    """A program that has the socket finds it as it was: the file tells it which server that is."""
    first, second = slots
    slot_shares.show(first, [second], [GPU])
    before = (second / "shares" / f"{GPU}.sock").stat()
    slot_shares.show(first, [second], [GPU])
    assert (second / "shares" / f"{GPU}.sock").stat() == before


def test_files_of_other_shares_are_removed(slots: tuple[Path, Path]) -> None:
    """Files of an earlier pod with that slot, or of shares taken away since; drafts stay."""
    first, second = slots
    slot_shares.show(first, [second], [GPU])
    for slot in slots:
        (slot / "shares" / f"{OTHER}.sock").touch()
        (slot / "shares" / f".{GPU}.json.new").touch()
    slot_shares.withdraw(slots, [GPU])
    kept = {f"{GPU}.sock", f"{GPU}.json", f".{GPU}.json.new"}
    assert [names(slot) for slot in slots] == [kept, kept]
    slot_shares.withdraw(slots, [])
    assert [names(slot) for slot in slots] == [set(), set()]


def test_file_written_while_its_share_ends_is_removed(slots: tuple[Path, Path]) -> None:
    """Between the first check and the end of the share a file may be written once more."""
    first, second = slots
    slot_shares.withdraw(slots, [])
    (second / "shares" / f"{GPU}.json").write_text("{}")
    slot_shares.show(first, [second], [])
    assert names(second) == set()


def test_failed_socket_is_not_linked(slots: tuple[Path, Path]) -> None:
    """Nor is the one before it, at which no process listens."""
    first, second = slots
    slot_shares.show(first, [second], [GPU])
    (first / "shares" / f"{GPU}.sock").unlink()
    slot_shares.show(first, [second], [GPU])
    assert names(second) == {f"{GPU}.json"}


def test_no_link_is_followed(slots: tuple[Path, Path], tmp_path: Path) -> None:
    """A program that could write there makes us write nowhere else."""
    first, second = slots
    (tmp_path / "elsewhere").mkdir()
    (second / "shares").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="shares"):
        slot_shares.show(first, [second], [GPU])
    assert not list((tmp_path / "elsewhere").iterdir())


def test_slot_has_a_place_for_the_driver_and_is_removed_as_a_whole(slots: tuple[Path, Path]) -> None:
    """The real driver's files are mounted upon files, which a read-only directory must have before."""
    first, _ = slots
    assert (first / "driver" / "libcuda.so.1").read_bytes() == b""
    assert (first / "driver" / "libnvidia-ml.so.1").read_bytes() == b""
    slot_directories.make(first)
    (first / "node.sock").touch()
    slot_directories.remove(first)
    assert not first.exists()
