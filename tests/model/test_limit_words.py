"""The words about the limit of a user."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.errors import LimitExceeded, from_json
from jupyter_gpu.model.limit_words import described, exceeded, lowered, remark, unfulfilled
from jupyter_gpu.model.limits.pod_limit import PodLimit, Reclaim
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import LIMIT_LOWERED, Condition, Mode, View

from .limits.strategies import pod_limits
from .test_golden import cases

BY_ROOT = Source(SourceKind.GROUP, "ml", "root", 1777800000)
SAYS = "set for group ml by root on 3 May."
AT = 1795617000.0


def limit(milli: int | None, most: int | None, at: float | None = None) -> PodLimit:
    """Return a limit of group ``ml``; amounts in milli."""
    return PodLimit(milli, most, BY_ROOT, at)


@pytest.mark.parametrize("case", cases("limits"))
def test_views_with_limits(case: dict[str, Any]) -> None:
    """Each state has its sentence and its limit in words, and is read and written again without loss."""
    view = View.from_json(case["view"])
    assert json.loads(json.dumps(view.to_json())) == case["view"]
    assert sentence(view, zone=UTC) == case["sentence"]
    assert view.user_limit
    assert described(view.user_limit) == case["described"]
    assert view.to_json()["limit_source"] == view.user_limit.source.sentence()


@pytest.mark.parametrize(
    ("milli", "most", "text"),
    [
        (2000, 2000, f"Your limit is 2 GPUs, {SAYS} Ask for that or less, or ask an administrator for more."),
        (500, 500, f"Your limit is 0.5 GPU, {SAYS} Ask for that or less, or ask an administrator for more."),
        (0, 0, f"Your limit is 0 GPUs, {SAYS} Ask an administrator for more."),
        (
            1000,
            2000,
            f"Your limit is 2 GPUs, {SAYS} Your other servers have 1. Ask here for 1 GPU or less, give some back "
            "there, or ask an administrator for more.",
        ),
        (
            0,
            2000,
            f"Your limit is 2 GPUs, {SAYS} Your other servers have all of that. Give some back there, or ask an "
            "administrator for more.",
        ),
    ],
)
def test_refusal_says_whose_limit_it_is(milli: int, most: int, text: str) -> None:
    """The error says what the limit is, where it comes from and what to do; programs find the same in its fields."""
    error = exceeded(limit(milli, most))
    assert (str(error), error.limit, error.maximum, error.source) == (text, milli, most, BY_ROOT.to_json())
    again = from_json(json.loads(json.dumps(error.to_json())))
    assert isinstance(again, LimitExceeded)
    assert (str(again), again.limit, again.maximum, again.source) == (text, milli, most, BY_ROOT.to_json())


@pytest.mark.parametrize(
    ("found", "granted", "text"),
    [
        (limit(2000, 2000), 2000, f"Your limit is 2 GPUs, {SAYS} The request for 3 GPUs stands"),
        (limit(0, 0), 0, f"Your limit is 0 GPUs, {SAYS} The request for 3 GPUs stands"),
        (limit(4000, 4000), 1000, "Your limits allow no more now. The request for 3 GPUs stands"),
        (limit(None, None), 1000, "Your limits allow no more now. The request for 3 GPUs stands"),
    ],
)
def test_wait_for_a_limit_says_what_stands(found: PodLimit, granted: int, text: str) -> None:
    """The error says that the request stands and what ends it."""
    error = unfulfilled(found, 3000, granted)
    way_out = f"gpu.resize({granted // 1000}) asks for no more." if granted else "gpu.release() takes it back."
    assert str(error) == f"{text}: the rest comes when that allows it; {way_out}"
    assert (error.limit, error.maximum) == (granted, found.max)


@pytest.mark.parametrize(
    ("found", "milli", "text"),
    [
        (limit(2000, 2000, AT), 3000, "This server has 3 GPUs: 1 GPU will be taken back at 14:30 UTC on 25 November,"),
        (limit(1000, 4000, AT), 2500, "has 2.5 GPUs: up to 1.5 GPUs will be taken back at 14:30 UTC on 25 November,"),
        (limit(2000, 2000, AT), 2000, ""),
        (limit(2000, 2000), 3000, ""),
        (limit(None, None, AT), 3000, ""),
    ],
)
def test_lowered_limit_says_how_much_goes_when(found: PodLimit, milli: int, text: str) -> None:
    """The notice has the amount above the limit and the time; without both there is none."""
    said = lowered(found, milli)
    assert text in said
    assert bool(said) is bool(text)


def test_limit_is_described_once() -> None:
    """The remark is left out where a condition describes the limit, and where there is none."""
    view = View("i", 1, Mode.ENFORCED, False, "kubernetes", 4000, 2000, (0,))
    assert remark(view) == ""
    view = replace(view, allocated=Allocated(1, limit=limit(2000, 2000)))
    assert remark(view) == f"Your limit is 2 GPUs, {SAYS}"
    assert remark(replace(view, conditions=(Condition(LIMIT_LOWERED, "Lowered."),))) == ""
    assert remark(replace(view, allocated=Allocated(1, limit=limit(None, None)))) == ""


@given(pod_limits, st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_limit_has_words(found: PodLimit, wanted: int, granted: int) -> None:
    """Whatever the limit and its names are, every text is one line of sentences."""
    texts = [described(found), str(exceeded(found)), str(unfulfilled(found, wanted, granted)), lowered(found, granted)]
    for text in filter(None, texts):
        assert len(text.splitlines()) == 1
        assert text.endswith(".")


def test_what_is_taken_back_for_others_is_told() -> None:
    """Each amount has its time; GPUs above the user's own limit come first."""
    alone = PodLimit(None, None, reclaimed=(Reclaim(1000, AT),))
    assert lowered(alone, 2000) == (
        "Others wait for GPUs that come first to them: 1 GPU at 14:30 UTC on 25 November will be taken back from this "
        "server, idle GPUs first, then the newest. Only pods of preemptible Jobs are ended."
    )
    more = replace(limit(1000, 1000, AT), reclaimed=(Reclaim(1000, AT), Reclaim(500, AT + 60), Reclaim(500, AT + 120)))
    text = lowered(more, 2000)
    assert text.startswith("Your limit is 1 GPU")
    assert "1 GPU at 14:30 UTC on 25 November, 0.5 GPU at 14:31 UTC on 25 November and 0.5 GPU at 14:32 UTC" in text
    assert "Others wait" not in lowered(limit(1000, 1000, AT), 2000)
