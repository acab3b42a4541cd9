"""The compute of a GPU, by its units and their clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import MAX_COMPUTE
from jupyter_gpu_node.gpus.rules.compute import billions


@pytest.mark.parametrize(
    ("cores", "megahertz", "found"),
    [(16_896, 1980, 66_908), (6_912, 1410, 19_491), (2_560, 1590, 8_140), (6_656, 1700, 22_630)],
)
def test_compute_is_what_the_makers_say(cores: int, megahertz: int, found: int) -> None:
    """H100 SXM 67, A100 19.5, T4 8.1 and MI210 22.6 TFLOPS."""
    assert billions(cores, megahertz) == found


@given(st.integers(-10, 2**64), st.integers(-10, 2**64))
def test_compute_makes_sense_or_is_not_known(units: int, megahertz: int) -> None:
    """Whatever a driver says, an inventory with it can be read."""
    found = billions(units, megahertz)
    assert found is None or 0 < found <= MAX_COMPUTE
    assert found is None or (units > 0 and megahertz > 0)
