"""The ways to the workers of a pod, as the server tells them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.service import Relation, Service, WorkerPart
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.remote.first_process import WorkerAddress, read_ways
from jupyter_gpu.server.rules.pairing import KeyPair, ways
from tests.model.strategies import json_values
from tests.model.test_service import KEY

PART = WorkerPart("w1", "node2", 1000, Relation.SWITCH, "p", "u", "10.0.2.7", 47100, KEY)


def test_what_the_server_says_is_read() -> None:
    """Each way by its worker; a worker without an address has none."""
    body = ways(Service(1, (PART, WorkerPart("w2", "node3"))), {"w1": KeyPair(KEY, KEY), "w2": KeyPair(KEY, KEY)})
    assert read_ways(body) == {"w1": WorkerAddress("node2", "10.0.2.7", 47100, KEY, KEY, KEY)}
    assert read_ways({"workers": []}) == {}


@given(st.sampled_from(["id", "node", "address", "port", "key", "public", "secret"]), json_values)
def test_any_answer_is_read_or_refused(field: str, value: object) -> None:
    """Whatever a field has."""
    (way,) = ways(Service(1, (PART,)), {"w1": KeyPair(KEY, KEY)})["workers"]
    named = True
    try:
        read_ways({"workers": [{**way, field: value}]})
    except FieldError as error:
        named = bool(error.field)
    assert named


def test_no_answer_of_ours() -> None:
    """The words of another program."""
    with pytest.raises(FieldError):
        read_ways({"workers": 7})
