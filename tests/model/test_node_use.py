"""The use of a node's CPU, memory and disk, as its Node carries it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.node_use import EIGHTHS, NodeUse, decode_use

from .strategies import extras

eighths = st.none() | st.integers(0, EIGHTHS)
uses = st.builds(NodeUse, eighths, eighths, eighths, extra=extras(("cpu", "memory", "disk")))


@given(uses)
def test_use_survives_a_round_trip(use: NodeUse) -> None:
    """Also fields of a newer version, and what is not known."""
    assert decode_use(encode(use)) == use


@pytest.mark.parametrize("text", ["", "[]", "3", '{"cpu": 9}', '{"cpu": -1}', '{"memory": 1.5}', '{"disk": true}'])
def test_use_that_makes_no_sense_is_refused(text: str) -> None:
    """It is an eighth of all, or nothing."""
    with pytest.raises(InvalidAnnotation, match="use cannot be read"):
        decode_use(text)
