"""The fields that a request changes, and those that it keeps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.request import FORGET, decode_request
from jupyter_gpu.model.reservation import own

from . import strategies as any_

FULL = Wish(1000, 500, 2**30, ("NVIDIA H100",), "island", "local", 5)


def asked(now: Wish | None, **body: object) -> Wish:
    return decode_request(json.dumps(body).encode()).after(now)


def test_amount_alone_keeps_the_options() -> None:
    """Everything else stays, also in a wish that reservations raise."""
    assert asked(FULL, gpus=2) == Wish(2000, 500, 2**30, ("NVIDIA H100",), "island", "local", 5)
    assert asked(Wish(3000, memory=7, base=1000), milli=500) == Wish(500, memory=7)
    assert asked(None, gpus=2) == Wish(2000)


def test_named_option_changes() -> None:
    """The named option changes, and null takes one back."""
    assert asked(FULL, gpus=1, priority=1).priority == 1
    assert asked(FULL, gpus=1, priority=1).memory == 2**30
    assert asked(FULL, gpus=1, model=None) == Wish(1000, 500, 2**30, (), "island", "local", 5)
    assert asked(FULL, gpus=1, **FORGET) == Wish(1000)


def test_amount_of_uneven_shares_is_not_cut() -> None:
    """An amount that is no whole number of shares loses the cut."""
    assert asked(FULL, milli=1250).each is None
    assert asked(FULL, milli=1250).memory == 2**30


def test_too_many_shares_are_refused() -> None:
    """Refused, as if it had been asked for at once."""
    with pytest.raises(InvalidRequest, match="more than one pod can have") as caught:
        asked(Wish(100, each=1), gpus=1)
    assert caught.value.field == "each"


def test_only_an_overruling_request_overrules() -> None:
    """A request overrules reservations only if it says so."""
    assert not decode_request(b'{"gpus": 1}').overrule
    assert not decode_request(b'{"gpus": 1, "overrule": null}').overrule
    assert decode_request(b'{"gpus": 1, "overrule": true}').overrule
    with pytest.raises(InvalidRequest, match="'overrule' must be true or false"):
        decode_request(b'{"gpus": 1, "overrule": 1}')
    with pytest.raises(InvalidRequest, match="'base' is unknown"):
        decode_request(b'{"milli": 1, "base": 0}')


@given(any_.wishes)
def test_same_amount_changes_nothing(wish: Wish) -> None:
    """Whatever was asked for."""
    assert asked(wish, milli=own(wish).milli) == own(wish)
