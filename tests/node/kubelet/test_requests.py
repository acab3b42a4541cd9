"""Requests of a pod over its socket: read strictly, and only what is known."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.service import MAX_WORKERS, Peer
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.kubelet.rules.requests import MAX_BYTES, read
from tests.model.strategies import peers
from tests.model.test_service import KEY


def line(**body: Any) -> bytes:
    return json.dumps(body).encode()


@given(peers)
def test_keys_are_read_as_they_were_said(peer: Peer) -> None:
    """A worker says its own, and so does a notebook, also one with as many workers as there can be."""
    said = line(put="peer", **peer.to_json())
    assert read(said) == peer
    assert len(said) < MAX_BYTES / 2


@pytest.mark.parametrize("what", ["node", "sample", "details", "totals", "pod"])
def test_questions_are_read(what: str) -> None:
    """Each by its name."""
    assert read(line(get=what)) == what


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "get"),
        ({"get": "peer"}, "get"),
        ({"put": "pod", "key": KEY, "port": 1}, "put"),
        ({"put": ["peer"], "key": KEY, "port": 1}, "put"),
        ({"put": None, "key": KEY, "port": 1}, "put"),
        ({"put": "peer"}, "key"),
        ({"put": "peer", "key": KEY}, "port"),
        ({"put": "peer", "key": KEY, "port": 0}, "port"),
        ({"put": "peer", "key": KEY, "port": 65536}, "port"),
        ({"put": "peer", "key": KEY, "port": True}, "port"),
        ({"put": "peer", "key": KEY[:-1], "port": 1}, "40 characters"),
        ({"put": "peer", "key": KEY, "port": 1, "keys": {}}, "'key' or 'keys'"),
        ({"put": "peer", "keys": {"w0": KEY}}, "name of a worker"),
        ({"put": "peer", "keys": {"../w1": KEY}}, "name of a worker"),
        ({"put": "peer", "keys": {"w1": "#" * 40}}, "40 characters"),
        ({"put": "peer", "keys": {f"w{n}": KEY for n in range(1, MAX_WORKERS + 2)}}, "more than"),
        ({"put": "peer", "keys": [["w1", KEY]]}, "keys"),
    ],
)
def test_what_is_odd_is_refused(body: dict[str, Any], why: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(FieldError, match=why):
        read(line(**body))


@given(
    st.binary(max_size=200) | st.builds(lambda body: json.dumps(body).encode(), st.dictionaries(st.text(), st.none()))
)
def test_garbage_is_refused(data: bytes) -> None:
    """Whatever it is; nothing else is raised."""
    with pytest.raises(FieldError):
        read(data)


def test_long_requests_are_refused() -> None:
    """Before they are read as JSON."""
    with pytest.raises(FieldError):
        read(line(get="node", more="x" * MAX_BYTES))
