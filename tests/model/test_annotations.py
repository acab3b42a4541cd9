"""The wire vocabulary: round trips, what is kept, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import (
    MAX_BYTES,
    Allocated,
    Attached,
    Requested,
    Wish,
    decode_allocated,
    decode_attached,
    decode_inventory,
    decode_requested,
    encode,
    record,
)
from jupyter_gpu.model.errors import InvalidAnnotation, InvalidRequest, TooLarge
from jupyter_gpu.model.gpu import MAX_GPUS, Device, DrainingShare, GpuShare, Holder, pieces, total
from jupyter_gpu.model.node_use import decode_use
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.request import MAX_REQUEST_BYTES, decode_request
from jupyter_gpu.model.reservation import own
from jupyter_gpu.model.service import decode_service, decode_worker, decode_worker_service, decode_worker_status

from . import strategies as any_
from .test_strict import nearly_json

pytestmark = pytest.mark.uncounted(after=25)

DECODERS: list[Callable[[str | bytes], Any]] = [
    decode_requested,
    decode_allocated,
    decode_attached,
    decode_inventory,
    decode_use,
    decode_service,
    decode_worker_service,
    decode_worker,
    decode_worker_status,
]
KNOWN_FIELDS = st.sampled_from(
    (
        *("generation", "milli", "gpus", "each", "memory", "model", "priority", "topology"),
        *("observedGeneration", "shares", "draining", "reason", "message", "ticket", "position", "uuid", "holders"),
        *("workers", "notebook", "id", "w1", "node", "uid", "name", "relation", "state", "peer", "keys", "key", "set"),
        *("keep", "park", "cause", "at", "parked", "bundle", "bytes", "since", "resting", "unparkable", "why"),
    )
)
nearly_right = st.dictionaries(KNOWN_FIELDS, any_.json_values | st.lists(st.dictionaries(KNOWN_FIELDS, any_.scalars)))


@given(any_.requested)
def test_requested_survives_a_round_trip(value: Requested) -> None:
    """Any recorded wish is read as it was written, unknown fields included."""
    assert decode_requested(encode(value)) == value


@given(any_.allocated)
def test_allocated_survives_a_round_trip(value: Allocated) -> None:
    """Any decision is read as it was written, unknown fields included."""
    assert decode_allocated(encode(value)) == value


@given(any_.attached)
def test_attached_survives_a_round_trip(value: Attached) -> None:
    """Any actual state is read as it was written, unknown fields included."""
    assert decode_attached(encode(value)) == value


@given(any_.inventories)
def test_inventory_survives_a_round_trip(value: tuple[Any, ...]) -> None:
    """Any inventory is read as it was written, unknown fields included."""
    assert decode_inventory(encode(value)) == value


@pytest.mark.uncounted(after=25)
@pytest.mark.parametrize("decode", DECODERS)
@given(st.binary(max_size=100) | nearly_json.map(str.encode) | nearly_right.map(lambda v: json.dumps(v).encode()))
def test_any_annotation_is_read_or_refused(decode: Callable[[bytes], Any], data: bytes) -> None:
    """Reading any bytes gives a value that can be written, or InvalidAnnotation."""
    try:
        value = decode(data)
    except InvalidAnnotation as error:
        json.dumps(error.to_json()).encode()
        return
    assert decode(encode(value).encode()) == value


@given(st.binary(max_size=100) | nearly_json.map(str.encode) | nearly_right.map(lambda v: json.dumps(v).encode()))
def test_any_request_is_read_or_refused(data: bytes) -> None:
    """Any body of a request is a wish in range or InvalidRequest."""
    try:
        wish = decode_request(data).wish
    except InvalidRequest as error:
        json.dumps(error.to_json()).encode()
        return
    assert 0 <= wish.milli <= MAX_MILLI
    assert sum(wish.pieces) == wish.milli


@given(any_.wishes, st.none() | any_.generations)
def test_server_reads_the_wish_of_a_client(wish: Wish, generation: int | None) -> None:
    """A client sends a wish by its own fields, and the server reads the same."""
    wish = own(wish)
    body = {**wish.to_json(), **({} if generation is None else {"generation": generation})}
    asked = decode_request(json.dumps(body).encode())
    assert (asked.wish, asked.generation) == (wish, generation)


def test_size_is_limited_before_reading() -> None:
    """An annotation has at most 64 KiB and a request 16 KiB; one byte more is refused before it is read."""
    text = '{"observedGeneration":1,"shares":[],"note":""}'
    fits = text[:-2] + "x" * (MAX_BYTES - len(text)) + text[-2:]
    assert decode_allocated(fits).extra
    with pytest.raises(InvalidAnnotation, match="at most 65,536"):
        decode_allocated(fits + " ")
    with pytest.raises(InvalidAnnotation, match="at most 65,536"):
        decode_requested(b"1" * 10**6)
    body = b'{"gpus": 1}'
    assert decode_request(body.ljust(MAX_REQUEST_BYTES)).wish == Wish(1000)
    with pytest.raises(TooLarge):
        decode_request(body.ljust(MAX_REQUEST_BYTES + 1))
    with pytest.raises(TooLarge):
        decode_request(b" " * 10_000_000)


def test_recorded_wish_is_the_next_generation() -> None:
    """A wish is the next generation; the same wish again is none; unknown fields stay."""
    first = record(None, Wish(1000))
    assert first == Requested(1, Wish(1000))
    assert record(first, Wish(1000)) is first
    assert record(first, Wish(1000, priority=1)) == Requested(2, Wish(1000, priority=1))
    bare = decode_requested("1")
    assert record(bare, Wish(1000)) == Requested(1, Wish(1000))
    kept = record(Requested(4, Wish(1000), {"note": "x"}, keep=1_780_000_000), Wish(0))
    assert kept == Requested(5, Wish(0), {"note": "x"}, keep=1_780_000_000)


def test_values_are_hashable() -> None:
    """Values can be members of sets, whatever unknown fields they carry."""
    assert len({Requested(1, Wish(1), {"a": []}), Requested(1, Wish(1), {"a": []})}) == 1


@given(st.integers(0, MAX_MILLI), st.none() | st.integers(1, 1000))
def test_pieces_add_up_to_the_amount(milli: int, each: int | None) -> None:
    """No piece is more than a GPU, and all but the last are equal."""
    try:
        cut = pieces(milli, each)
    except ValueError:
        assert each
        assert milli % each
        return
    assert sum(cut) == milli
    assert all(0 < piece <= 1000 for piece in cut)
    assert list(cut) == sorted(cut, reverse=True)
    assert len(set(cut[:-1])) <= 1


@pytest.mark.parametrize(("milli", "each"), [(-1, None), (MAX_MILLI + 1, None), (1000, 0), (1000, 1001), (1000, 300)])
def test_uneven_amount_is_refused(milli: int, each: int | None) -> None:
    """An amount that cannot be cut is refused."""
    with pytest.raises(ValueError, match=r"milli|each"):
        pieces(milli, each)


@pytest.mark.parametrize(
    "fields", [{"milli": 1000, "base": 1000}, {"milli": 1000, "base": 2000}, {"milli": 1000, "each": 500, "base": 250}]
)
def test_base_is_a_part_of_the_wish(fields: dict[str, int]) -> None:
    """Blocks ask for more than what is wanted beside them, and leave whole shares."""
    with pytest.raises(InvalidAnnotation, match="'base' must be less than 'milli', and whole shares"):
        decode_requested(json.dumps({"generation": 1, **fields}))
    assert decode_requested('{"generation": 1, "milli": 1000, "each": 500, "base": 500}').wish.base == 500


def test_number_of_shares_is_limited() -> None:
    """A wish has at most as many shares as an annotation may hold."""
    assert len(decode_requested(f"{MAX_GPUS}").wish.pieces) == MAX_GPUS
    with pytest.raises(InvalidAnnotation, match="257 shares are more than one pod can have"):
        decode_requested(f"{MAX_GPUS + 1}")


def test_shares_and_devices_have_simple_forms() -> None:
    """Shares add up and know whether they are exclusive; devices print as rules name them."""
    shares = (GpuShare("a", 1000), GpuShare("b", 250))
    assert total(shares) == 1250
    assert [share.exclusive for share in shares] == [True, False]
    assert DrainingShare("a", 500, (Holder(1, "python"),)).share == GpuShare("a", 500)
    assert Device.parse("195:255") == Device(195, 255)
    with pytest.raises(ValueError, match="such as '195:0'"):
        Device.parse(195)
    assert str(Device(195, 255)) == "195:255"
