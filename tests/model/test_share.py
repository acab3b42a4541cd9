"""A time share as its user sees it, and what two samples say of the time between them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.share import GuestUse, ShareRates, ShareUse, rates, read_shares
from jupyter_gpu.model.strict import FieldError

from .strategies import json_values

ONE = ShareUse(
    uuid="GPU-1",
    allocated=250,
    effective=400,
    guaranteed=1_000,
    borrowed=2_000,
    idle=3_000,
    overrun=100,
    switching=10,
    waited=5_000,
    throttled=500,
    lost=7,
    balance=1_200_000,
    cap=2_000_000,
    expires=17_000_000,
    sharing=2,
    period=100_000,
    busy=0.5,
    reason="a share that is not used lends it",
    memory_used=1024,
    memory_limit=4096,
)
TOTALS = ("guaranteed", "borrowed", "idle", "overrun", "switching", "waited", "throttled", "lost")

times = st.integers(0, strict.MAX_GENERATION)
shares = st.builds(
    ShareUse,
    uuid=st.sampled_from(["GPU-1", "GPU-2"]),
    allocated=st.integers(1, 1000),
    effective=st.integers(1, 1000),
    **dict.fromkeys([*TOTALS, "balance", "cap"], times),
    expires=st.none() | times,
    sharing=st.integers(0, 999),
    period=st.integers(1, 10**9),
    busy=st.none() | st.floats(0, 1),
    reason=st.sampled_from(["", "lent by a share without demand", "x" * 200]),
    memory_used=st.none() | times,
    memory_limit=st.none() | times,
    guest=st.none() | st.builds(GuestUse, st.floats(0, 1), times),
)


def test_time_with_work_is_what_it_used_and_what_it_waited() -> None:
    """The cost of passing the GPU on is none of it, nor what was lost."""
    assert ONE.with_work == 11_100


def test_whole_gpu_that_is_not_lent_is_exclusive() -> None:
    """One with a limit of memory has room for a guest."""
    lendable = replace(ONE, allocated=1000)
    assert [one.exclusive for one in (ONE, lendable, replace(lendable, memory_limit=None))] == [False, False, True]


@given(shares)
def test_share_survives_a_round_trip(share: ShareUse) -> None:
    """Any share is read as it was written, over text."""
    assert ShareUse.from_json(strict.loads(strict.dumps(share.to_json()), 10**6)) == share


def test_all_fields_are_written() -> None:
    """An unknown value is null, and an empty reason stays empty; a guest that is not there is left out."""
    body = replace(ONE, busy=None, expires=None, reason="").to_json()
    assert [*body, "guest"] == [item.name for item in fields(ShareUse)]
    assert (body["busy"], body["expires"], body["reason"]) == (None, None, "")


def test_fields_of_a_newer_version_are_ignored() -> None:
    """Unknown fields are ignored, as everywhere in a view."""
    assert ShareUse.from_json({**ONE.to_json(), "colour": "red"}) == ONE


@given(st.sampled_from([item.name for item in fields(ShareUse)]), json_values)
def test_any_field_is_read_or_refused(key: str, value: object) -> None:
    """Whatever stands in a field, the share is read or refused by the name of that field."""
    field = key
    try:
        ShareUse.from_json({**ONE.to_json(), key: value})
    except FieldError as error:
        field = error.field
    assert field in ({"guest", "busy", "memory"} if key == "guest" else {key})


@given(json_values)
def test_any_json_is_read_or_refused(value: object) -> None:
    """Any JSON value is refused with the reader's own error."""
    with pytest.raises(FieldError):
        ShareUse.from_json(value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("uuid", ""),
        ("allocated", 0),
        ("allocated", 1001),
        ("effective", 0),
        ("effective", 250.0),
        ("guaranteed", -1),
        ("waited", True),
        ("lost", 2**53),
        ("expires", -1),
        ("sharing", 1000),
        ("period", 0),
        ("busy", 1.01),
        ("busy", -0.1),
        ("busy", True),
        ("busy", "0.5"),
        ("reason", None),
        ("reason", 0),
        ("memory_limit", -1),
        ("guest", 0.4),
    ],
)
def test_impossible_share_is_refused(key: str, value: object) -> None:
    """The refusal names the field."""
    with pytest.raises(FieldError) as caught:
        ShareUse.from_json({**ONE.to_json(), key: value})
    assert caught.value.field == key


@pytest.mark.parametrize("key", [*TOTALS, "uuid", "balance", "cap", "sharing", "period", "reason"])
def test_required_fields_must_be_there(key: str) -> None:
    """Fields that every node knows are required."""
    body = ONE.to_json()
    del body[key]
    with pytest.raises(FieldError, match="missing"):
        ShareUse.from_json(body)


def test_reason_writes_to_no_terminal() -> None:
    """A reason has no control characters and is no longer than a line."""
    body = replace(ONE, reason="\x1b]0;owned\x07" + "x" * 300).to_json()
    assert body["reason"].startswith("\N{REPLACEMENT CHARACTER}]0;owned")
    assert len(body["reason"]) == 200
    assert ShareUse.from_json({**ONE.to_json(), "reason": "a\nb"}).reason == "a\N{REPLACEMENT CHARACTER}b"


def test_slice_follows_the_present_share() -> None:
    """The slice is that of what the share earns now, not of what it was given."""
    assert ONE.slice == 40_000


def test_shares_are_read_by_uuid() -> None:
    """Each under its own uuid."""
    assert read_shares({"GPU-1": ONE.to_json()}, "shares") == {"GPU-1": ONE}
    with pytest.raises(FieldError, match="another GPU"):
        read_shares({"GPU-2": ONE.to_json()}, "shares")
    with pytest.raises(FieldError, match="JSON object"):
        read_shares([], "shares")


def later(share: ShareUse, **grown: int) -> ShareUse:
    """Return the same share with totals that have grown by so much."""
    changed: dict[str, Any] = {name: getattr(share, name) + amount for name, amount in grown.items()}
    return replace(share, **changed)


def test_rates_are_parts_of_a_second() -> None:
    """Each part of a second; an overrun is time of its own, used early."""
    after = later(ONE, guaranteed=200_000, overrun=50_000, borrowed=100_000, idle=50_000, waited=300_000, throttled=1)
    assert rates(ONE, after, 1_000_000) == ShareRates(0.25, 0.1, 0.05, 0.3, 1e-6)
    assert ShareRates(0.25, 0.125, 0.5).running == 0.875


def test_single_sample_has_no_rates() -> None:
    """One sample says nothing of a time, nor do two of one moment."""
    assert rates(None, ONE, 1_000_000) is None
    assert rates(ONE, ONE, 0) is None
    assert rates(ONE, ONE, -5) is None
    assert rates(ONE, ONE, 5) == ShareRates()


def test_totals_of_a_restarted_node_count_from_zero() -> None:
    """A restarted node counts from 0: what it counted is all that is known."""
    after = replace(ONE, guaranteed=10, borrowed=20, idle=30, overrun=0, switching=0, waited=40, throttled=0, lost=0)
    assert rates(ONE, after, 1_000) == ShareRates(0.01, 0.02, 0.03, 0.04, 0.0)


def test_refund_is_no_restart() -> None:
    """The cost of a change of hands is given back at the end of a turn: a total may fall by that."""
    after = later(ONE, guaranteed=-100, overrun=-50, waited=500)
    assert rates(ONE, after, 1_000) == ShareRates(waiting=0.5)


def test_rates_never_exceed_the_time() -> None:
    """Two clocks, two moments: never more than all of the time."""
    found = rates(ONE, later(ONE, guaranteed=1_500, waited=500, throttled=900), 1_000)
    assert found == ShareRates(guaranteed=0.75, waiting=0.25, throttled=0.25)


@given(shares, shares, st.integers(1, 10**9))
def test_rates_of_any_two_samples_are_in_range(before: ShareUse, after: ShareUse, passed: int) -> None:
    """None is below 0, and together they are at most the time."""
    found = rates(before, after, passed)
    assert found is not None
    parts = (found.guaranteed, found.borrowed, found.idle, found.waiting)
    assert min(*parts, found.throttled) >= 0
    assert sum(parts) <= 1 + 1e-9
    assert found.throttled <= found.waiting
    assert found.running <= 1 + 1e-9


def test_expiry_comes_nearer_with_time() -> None:
    """A clock that was set back changes nothing; a full bank that is not used is renewed as it expires."""
    one = replace(ONE, balance=5, cap=10, expires=1_000)
    assert [one.aged(passed).expires for passed in (-5, 0, 300, 2_000)] == [1_000, 1_000, 700, 0]
    full = replace(one, balance=10)
    assert full.aged(300) == full
    empty = replace(one, balance=0, expires=None)
    assert empty.aged(300) == empty
