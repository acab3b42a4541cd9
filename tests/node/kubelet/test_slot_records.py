"""The plugin's own record of slots."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.kubelet import slot_records
from jupyter_gpu_node.kubelet.rules.slots import PodRef, SlotOwner
from jupyter_gpu_node.kubelet.slot_records import SlotRecord

words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=20)
owners = st.builds(SlotOwner, words, st.builds(PodRef, words, words, words), words)


@given(
    st.lists(owners, max_size=5),
    st.dictionaries(words, st.integers(0, 2**40), max_size=5),
    st.frozensets(words, max_size=3),
    st.dictionaries(words, st.frozensets(words, max_size=3), max_size=3),
)
def test_written_record_is_read_again(
    kept: list[SlotOwner], allocated: dict[str, float], gated: frozenset[str], devices: dict[str, frozenset[str]]
) -> None:
    """All of it; the time of a slot that was never given away is 0."""
    record = SlotRecord({owner.slot: owner for owner in kept}, allocated, gated, devices)
    read = slot_records.parse(slot_records.serialize(record))
    assert read.owners == record.owners
    assert read.allocated == {slot: allocated.get(slot, 0) for slot in {*record.owners, *allocated, *gated, *devices}}
    assert read.gated == gated
    assert read.devices == devices


@given(st.binary(max_size=200))
def test_any_text_gives_a_record_or_an_expected_error(text: bytes) -> None:
    """A file can hold anything after a crash of the machine."""
    with contextlib.suppress(FieldError):
        slot_records.parse(text)


def test_a_missing_record_is_an_empty_one(tmp_path: Path) -> None:
    """The first start on a node."""
    assert slot_records.load(tmp_path / "slots.json") == SlotRecord()


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"version": 2, "slots": []}', b'{"version": 1, "slots": [{"slot": "a"}]}']
)
def test_a_broken_record_is_put_aside(tmp_path: Path, text: bytes) -> None:
    """The plugin starts all the same, and the file is kept for inspection."""
    path = tmp_path / "slots.json"
    path.write_bytes(text)
    assert slot_records.load(path) == SlotRecord()
    assert path.with_suffix(".broken").read_bytes() == text
    assert not path.exists()


def test_a_record_that_cannot_be_read_is_an_empty_one(tmp_path: Path) -> None:
    """Here a directory lies in its place."""
    path = tmp_path / "slots.json"
    path.mkdir()
    assert slot_records.load(path) == SlotRecord()


def test_the_record_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A reader finds the old one meanwhile, and no draft stays behind."""
    path = tmp_path / "new" / "slots.json"
    slot_records.save(path, SlotRecord(allocated={"a": 1}))
    before = path.open("rb")
    slot_records.save(path, SlotRecord(allocated={"a": 2}))
    with before:
        assert slot_records.parse(before.read()).allocated == {"a": 1}
    assert slot_records.load(path).allocated == {"a": 2}
    assert list(path.parent.iterdir()) == [path]
