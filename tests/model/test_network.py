"""The use of a node's uplink, as its inventory carries it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import decode_inventory, encode
from jupyter_gpu.model.network import MAX_SPEED, NETWORK, SPEED, network_of, speed_of, with_network, with_speed
from tests.builders import inventory


@given(st.floats(allow_nan=False))
def test_use_survives_the_annotation_in_steps_of_a_tenth(use: float) -> None:
    """Written, read and written again it is the same, the nearest tenth within 0 and 1."""
    body = decode_inventory(encode(with_network(inventory(2), use)))
    found = network_of(body)
    assert found in {step / 10 for step in range(11)}
    assert abs(found - max(0.0, min(1.0, use))) <= 0.0500001
    assert encode(with_network(body, found)) == encode(body)


def test_unknown_use_leaves_no_trace() -> None:
    """An inventory without it is as before, and a number that was there goes."""
    plain = inventory(2)
    assert with_network(plain, None) == plain
    assert with_network(with_network(plain, 0.4), None) == plain
    assert network_of(plain) is None
    assert network_of(()) is None


def test_fields_of_newer_versions_stay() -> None:
    """Only the own field is replaced."""
    body = json.loads(encode(inventory(1)))
    body[0]["colour"] = "green"
    (gpu,) = with_network(decode_inventory(json.dumps(body)), 0.25)
    assert gpu.extra == {"colour": "green", NETWORK: 0.2}


def test_busiest_network_counts() -> None:
    """A node may reach its GPUs over several networks."""
    first, second = inventory(2)
    assert network_of((*with_network((first,), 0.3), *with_network((second,), 0.8))) == 0.8


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True, None, [], {}])
def test_senseless_use_is_unknown(value: Any) -> None:
    """The GPUs are known all the same."""
    body = json.loads(encode(inventory(1)))
    body[0][NETWORK] = value
    gpus = decode_inventory(json.dumps(body))
    assert len(gpus) == 1
    assert network_of(gpus) is None


@pytest.mark.parametrize(("value", "use"), [(0, 0.0), (1, 1.0), (0.55, 0.55)])
def test_finer_and_whole_numbers_are_read(value: float, use: float) -> None:
    """Steps of a tenth bind the writer only."""
    body = json.loads(encode(inventory(1)))
    body[0][NETWORK] = value
    assert network_of(decode_inventory(json.dumps(body))) == use


def test_speed_is_that_of_the_fastest_uplink() -> None:
    """Written and read it is the same; the use beside it stays; unknown, it leaves no trace."""
    plain = with_network(inventory(2), 0.4)
    fast = decode_inventory(encode(with_speed(plain, 100_000)))
    assert speed_of(fast) == 100_000
    assert network_of(fast) == 0.4
    assert speed_of((*fast, *with_speed(inventory(1), 400_000))) == 400_000
    assert with_speed(fast, None) == plain
    assert speed_of(plain) is None


@pytest.mark.parametrize("value", [True, 0, -1, 1.5, "100", MAX_SPEED + 1, None])
def test_speed_without_sense_is_not_known(value: object) -> None:
    """A field of another version or a wrong one is ignored."""
    body = json.loads(encode(inventory(1)))
    body[0][SPEED] = value
    assert speed_of(decode_inventory(json.dumps(body))) is None
