"""Packed texts and numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.changes import LimitChange, encode_changes
from jupyter_gpu_hub.rules.packed import pack, unpack


@given(st.binary())
def test_content_comes_back(content: bytes) -> None:
    """Whatever it is."""
    assert unpack(pack(content)) == content


def test_changes_take_little() -> None:
    """A third of their text, though each is a text of its own."""
    changes = [LimitChange("ann", 1777802400 + day, {"max": str(day)}, {"max": "4"}) for day in range(2)]
    text = encode_changes(changes).encode()
    assert len(pack(text)) < len(text) / 3
