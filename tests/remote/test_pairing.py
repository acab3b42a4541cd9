"""The words of a node plugin to a worker pod: in doubt it accepts nobody."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import ATTACHED, SERVICE, WORKER, Attached, encode
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.service import Peer, WorkerIdentity, WorkerService
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Loads
from jupyter_gpu.remote.rules.pairing import (
    accepted,
    read_annotations,
    read_gpus,
    read_sample,
    read_taken,
    recorded,
)
from tests.kernel.builders import gpu
from tests.model.test_service import KEY

PEER = Peer(KEY, 47100)
PAIR = {WORKER: encode(WorkerIdentity("u", "w1")), SERVICE: encode(WorkerService("ann", "u", KEY))}


def state(pod: Any, gone: Any = False) -> bytes:
    return json.dumps({"pod": pod, "gone": gone, "trouble": ""}).encode()


def pod(annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"uid": "x", "annotations": annotations}}


def told(line: bytes) -> Mapping[str, str]:
    found = read_annotations(line)
    assert found is not None
    return found


def test_the_key_of_its_notebook_is_accepted() -> None:
    """As the scheduler wrote it."""
    assert accepted(told(state(pod(PAIR)))) == KEY


@pytest.mark.parametrize(
    "changes",
    [
        {SERVICE: encode(WorkerService("ann", "u"))},
        {SERVICE: encode(WorkerService("eve", "other", KEY))},
        {SERVICE: "{}"},
        {SERVICE: encode(WorkerService("ann", "u", KEY)).replace(KEY, KEY[:-1])},
        {SERVICE: None},
        {WORKER: encode(WorkerIdentity("other", "w1"))},
        {WORKER: "[]"},
        {WORKER: 7},
    ],
)
def test_nobody_is_accepted_in_doubt(changes: dict[str, Any]) -> None:
    """Without a key, with that of another notebook, or with what cannot be read."""
    assert accepted(told(state(pod({**PAIR, **changes})))) == ""


def test_nobody_is_accepted_by_a_pod_that_is_gone() -> None:
    """Whatever its annotations were. A plugin that does not know the pod yet says nothing of that."""
    assert accepted(told(state(pod(PAIR), gone=True))) == ""
    assert accepted(told(state(None, gone=True))) == ""
    assert read_annotations(state(None)) is None


def test_recorded_keys_are_those_of_attached() -> None:
    """None while there are none, or while they cannot be read."""
    assert recorded({ATTACHED: encode(Attached(1, peer=PEER))}) == PEER
    assert recorded({ATTACHED: encode(Attached(1))}) is None
    assert recorded({ATTACHED: "{"}) is None
    assert recorded({}) is None


def test_answers_to_a_key() -> None:
    """It was taken, or there is a reason why not, printable and short."""
    assert read_taken(b'{"put": "peer"}') == ""
    assert read_taken(json.dumps({"error": "too often\n" + "x" * 1000}).encode()).startswith("too often")
    assert len(read_taken(json.dumps({"error": "x" * 1000}).encode())) <= 300
    for odd in (b"{}", b'{"put": "pod"}', b"[]", b"{"):
        with pytest.raises(FieldError):
            read_taken(odd)


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", state(7), state({}), state({"metadata": {}}), state(None, gone=1)])
def test_odd_states_are_refused(line: bytes) -> None:
    """And so the connection begins anew."""
    with pytest.raises(FieldError):
        read_annotations(line)


def test_loads_are_read() -> None:
    """As many as a worker may tell."""
    assert read_sample(b'{"loads": {"GPU-1": {"utilisation": 7, "memory": null}}, "holders": {}}') == Loads(
        {"GPU-1": GpuLoad(7.0, None)}
    )
    told = {"loads": {}, "kinds": {"GPU-1": {"model": "H100", "memory": 80}}}
    assert read_sample(json.dumps(told).encode()) == Loads({}, {"GPU-1": GpuKind("H100", 80)})
    many: dict[str, Any] = {f"GPU-{number}": {} for number in range(200)}
    assert len(read_sample(json.dumps({"loads": many}).encode()).gpus) == control.MAX_LOADS
    for odd in (
        b'{"error": "no"}',
        b"{}",
        b'{"loads": []}',
        b'{"loads": {"GPU-1": {"memory": -1}}}',
        b"",
        b'{"loads": {}, "kinds": 7}',
    ):
        with pytest.raises(FieldError):
            read_sample(odd)


def test_gpus_of_the_node() -> None:
    """As the node plugin tells any pod; a list that cannot be read is none."""
    told = {"node": "n", "simulated": True, "gpus": [gpu(3).to_json()], "shares": {}}
    assert read_gpus(json.dumps(told).encode()) == (gpu(3),)
    for odd in (b"{}", b'{"gpus": [{}]}', b'{"error": "no"}', b""):
        with pytest.raises(FieldError):
            read_gpus(odd)


@given(st.binary(max_size=300))
@example(b'{"error":""}')
def test_garbage_is_no_consent(line: bytes) -> None:
    """Nothing else is raised, and a refusal has a reason."""
    with pytest.raises(FieldError):
        read_annotations(line)
    with suppress(FieldError):
        assert read_taken(line)
