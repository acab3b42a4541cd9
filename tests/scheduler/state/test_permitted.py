"""The part of a wish that an allowance permits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.state.permitted import permitted
from tests.builders import GIB, wish

CUT: dict[str, tuple[Wish, int, Wish]] = {
    "within the allowance": (wish(2), 2000, wish(2)),
    "whole GPUs": (wish(3), 2000, wish(2)),
    "two and a half": (wish(3), 2500, wish(2.5)),
    "a smaller share": (wish(0.5), 300, wish(0.3)),
    "a share of a whole GPU": (wish(1), 500, wish(0.5)),
    "nothing": (wish(3), 0, wish(0)),
    "shares of one GPU each": (wish(3, each=1000), 2500, wish(2, each=1000)),
    "shares whose size was chosen are not cut": (wish(0.5, each=500), 300, wish(0, each=500)),
    "as many of them as fit": (wish(2, each=500), 1700, wish(1.5, each=500)),
    "with enough memory in each: whole GPUs stay whole": (
        wish(2, memory=60 * GIB),
        1500,
        wish(1, memory=60 * GIB),
    ),
    "with memory: the half that was wished fits": (wish(1.5, memory=GIB), 700, wish(0.5, memory=GIB)),
    "with memory: nothing smaller than was wished": (wish(1, memory=GIB), 700, wish(0, memory=GIB)),
    "kind, island and priority stay": (
        wish(4, model=("A100",), topology="island", priority=3),
        3000,
        wish(3, model=("A100",), topology="island", priority=3),
    ),
    "a lease's part stays below the amount": (wish(3, base=1000), 2000, wish(2, base=1000)),
    "a lease's part that is not below the amount goes": (wish(3, base=2000), 2000, wish(2)),
}


@pytest.mark.parametrize("name", CUT)
def test_permitted_part(name: str) -> None:
    """Amount and sizes of shares are cut as the rules say, and nothing else changes."""
    asked, allowance, expected = CUT[name]
    assert permitted(asked, allowance) == expected


@st.composite
def _wishes(draw: st.DrawFn) -> Wish:
    each = draw(st.none() | st.sampled_from([250, 300, 500, 1000]))
    amount = draw(st.integers(0, 8)) * each if each else draw(st.integers(0, 4000))
    fields: dict[str, Any] = {"memory": draw(st.none() | st.just(GIB)), "topology": draw(st.none() | st.just("island"))}
    base = draw(st.none() | st.integers(0, max(0, amount - 1)))
    if base is not None and amount and base % (each or 1) == 0:
        fields["base"] = base
    return Wish(amount, each, **fields)


@given(_wishes(), st.integers(0, 5000), st.integers(0, 5000))
def test_permitted_is_a_valid_wish_within_the_allowance(asked: Wish, one: int, other: int) -> None:
    """It is never more than allowed or wished, can be written and read, and a larger allowance never permits less."""
    found = permitted(asked, one)
    assert found.milli <= one
    assert Wish.from_fields(found.to_json()) == found
    assert permitted(found, one) == found
    less, more = sorted((one, other))
    assert permitted(asked, less).milli <= permitted(asked, more).milli <= asked.milli
    assert set(found.pieces) <= set(asked.pieces) or not (asked.each or asked.memory)
