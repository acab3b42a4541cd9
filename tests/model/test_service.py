"""Workers of a notebook on the wire: round trips, keys, addresses, and what a notebook can reach."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.service import (
    Z85,
    Peer,
    Relation,
    Service,
    WorkerIdentity,
    WorkerPart,
    WorkerService,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
    decode_service,
    decode_worker,
    decode_worker_service,
    decode_worker_status,
    read_key,
    read_worker_id,
)
from jupyter_gpu.model.strict import FieldError

from . import strategies as any_

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
"""The first key in the documentation of CurveZMQ."""


@given(any_.services)
def test_service_survives_a_round_trip(value: Service) -> None:
    """Any workers are read as they were written, unknown fields included."""
    assert decode_service(encode(value)) == value


@given(any_.worker_services)
def test_accepted_notebook_survives_a_round_trip(value: WorkerService) -> None:
    """Any notebook that a worker accepts is read as it was written."""
    assert decode_worker_service(encode(value)) == value


@given(any_.worker_identities)
def test_identity_survives_a_round_trip(value: WorkerIdentity) -> None:
    """Any worker's identity is read as it was written."""
    assert decode_worker(encode(value)) == value


@given(any_.worker_statuses)
def test_states_of_workers_survive_a_round_trip(value: WorkerStatuses) -> None:
    """Any states of workers are read as they were written."""
    assert decode_worker_status(encode(value)) == value


@given(any_.public_keys)
def test_every_key_of_32_bytes_is_read(key: str) -> None:
    """The strategy writes 32 bytes as ZeroMQ does; each such key is taken as it is."""
    assert read_key(key) == key


@given(st.text(Z85, min_size=40, max_size=40))
def test_only_32_bytes_are_a_key(text: str) -> None:
    """Five letters say four bytes: where their number is larger, ZeroMQ could not read the key."""
    numbers = [
        sum(Z85.index(letter) * 85 ** (4 - place) for place, letter in enumerate(text[start : start + 5]))
        for start in range(0, 40, 5)
    ]
    if max(numbers) < 2**32:
        assert read_key(text) == text
        return
    with pytest.raises(FieldError, match="40 characters of Z85"):
        read_key(text)


@pytest.mark.parametrize("value", [None, 40, KEY[:-1], KEY + "0", KEY[:-1] + " ", KEY[:-1] + "~", "é" * 40, [KEY]])
def test_what_is_no_key_is_refused(value: object) -> None:
    """Another length, another letter or another type is no key."""
    with pytest.raises(FieldError, match="'key' must be a public key"):
        read_key(value)


@pytest.mark.parametrize("value", ["w1", "w12", "w999999999"])
def test_name_of_a_worker(value: str) -> None:
    """A worker is named by a number."""
    assert read_worker_id(value) == value


@pytest.mark.parametrize("value", [None, 1, "", "1", "w", "w0", "w01", "W1", "w1 ", "w1\n", "w-1", "w١", "w1234567890"])
def test_what_names_no_worker_is_refused(value: object) -> None:
    """The name becomes part of a pod's name, so only small letters and digits of ASCII are taken."""
    with pytest.raises(FieldError, match="such as 'w1'"):
        read_worker_id(value)


@pytest.mark.parametrize(
    ("known", "ready"),
    [
        ({"address": "10.0.2.7", "port": 47100, "key": KEY}, True),
        ({"port": 47100, "key": KEY}, False),
        ({"address": "10.0.2.7", "key": KEY}, False),
        ({"address": "10.0.2.7", "port": 47100}, False),
        ({}, False),
    ],
)
def test_worker_is_reached_once_all_is_known(known: dict[str, Any], ready: bool) -> None:
    """Without address, port or key nothing is dialled."""
    assert WorkerPart("w1", "node2", **known).ready is ready


def test_at_most_eight_workers_are_read() -> None:
    """A pod's socket and panel hold no more, whatever an annotation says."""
    named = tuple(WorkerPart(f"w{number}", "node2") for number in range(1, 10))
    told = {part.id: WorkerStatus(WorkerState.RUNNING) for part in named}
    assert decode_service(encode(Service(1, named[:8]))).workers == named[:8]
    with pytest.raises(InvalidAnnotation, match="'workers'"):
        decode_service(encode(Service(1, named)))
    with pytest.raises(InvalidAnnotation, match="more than 8 workers"):
        decode_worker_status(encode(WorkerStatuses(told)))


def test_workers_are_found_by_name() -> None:
    """A notebook finds its worker by id; one that is gone is not there."""
    first, second = WorkerPart("w1", "node2", 1000, Relation.SWITCH), WorkerPart("w3", "node3")
    service = Service(7, (first, second))
    assert service.worker("w3") is second
    assert service.worker("w2") is None


@pytest.mark.parametrize(
    ("peer", "body"),
    [
        (Peer(KEY, 47100), {"key": KEY, "port": 47100}),
        (Peer(keys=(("w1", KEY),)), {"keys": {"w1": KEY}}),
        (Peer(), {"keys": {}}),
    ],
)
def test_peer_is_a_worker_or_has_workers(peer: Peer, body: dict[str, Any]) -> None:
    """A worker says its key and port, a notebook a key for each worker, and fields that are null are absent."""
    assert peer.to_json() == body
    assert Peer.from_json(body) == peer
    assert Peer.from_json({**dict.fromkeys(("key", "keys", "port")), **body}) == peer


def test_words_of_kubernetes_are_shown_safely() -> None:
    """A message is cut and cleaned when it is written and when it is read."""
    status = WorkerStatus(WorkerState.REFUSED, "\x1b[31m" + "x" * 2000)
    written = status.to_json()["message"]
    assert written.startswith("\N{REPLACEMENT CHARACTER}[31m")
    assert len(written) == 1024
    assert WorkerStatus.from_json({"state": "Refused", "message": status.message}).message == written


def test_values_are_hashable() -> None:
    """Values can be members of sets, whatever unknown fields they carry."""
    assert len({Service(1, extra={"a": []}), Service(1, extra={"a": []})}) == 1
    assert len({WorkerStatuses({}), WorkerStatuses({})}) == 1


def test_it_is_loaded_only_where_it_is_needed() -> None:
    """Annotations without a peer load none of this module."""
    code = (
        "import sys; from jupyter_gpu.model.annotations import decode_attached;"
        """decode_attached('{"observedGeneration":1,"shares":[]}');"""
        "print('jupyter_gpu.model.service' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
