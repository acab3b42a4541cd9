"""Which pod is a server, and which request may be written into it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    REQUESTED,
    SERVICE,
    WORKER_STATUS,
    Requested,
    Wish,
    decode_requested,
    encode,
)
from jupyter_gpu.model.errors import LimitExceeded, from_json
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.pod_limit import LimitWithWorkers, PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_hub.rules import server_pod
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.server_pod import HubServer, PodChange
from tests.builders import allocated

HUB = "hub-one"
MAIN = HubServer(Owner("User", "ann", HUB), "")
TWO = HubServer(Owner("User", "ann", HUB), "two")
NAME = "hub.jupyter.org/servername"
LIMITED = PodLimit(2000, 2000, Source(SourceKind.GROUP, "ml", "root", 1777800000))


def pod(
    name: str = "p", *, user: str | None = "ann", hub: str | None = HUB, server: str | None = "", **more: Any
) -> dict[str, Any]:
    """Return a pod of a server as KubeSpawner makes it; ``server`` ``None``: it is none."""
    owner = {"hub.jupyter.org/username": user, "jupyter-gpu.io/hub": hub, NAME: server or None}
    return {
        "metadata": {
            "namespace": "jhub",
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "annotations": {**strict.without_none(owner), **more.pop("annotations", {})},
            "labels": {} if server is None else {NAME: server},
            **more.pop("metadata", {}),
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}}]},
        "status": {"phase": "Running"},
        **more,
    }


@pytest.mark.parametrize(
    ("found", "of_main", "of_two"),
    [
        (pod(), True, False),
        (pod(server="two"), False, True),
        (pod(server=None), False, False),  # no server at all: its name is not the empty one
        (pod(user="bob"), False, False),
        (pod(user="Ann"), False, False),
        (pod(user=None), False, False),
        (pod(hub="hub-two"), False, False),
        (pod(hub=None), False, False),  # it belongs to the hub that is named like its namespace
        (pod(spec={"containers": [{"name": "c"}]}), False, False),  # without a slot, its user is not guarded
        (pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False, False),
        (pod(status={"phase": "Succeeded"}), False, False),
        (pod(status={"phase": "Failed"}), False, False),
        (pod(status={"phase": "Pending"}), True, False),
        ({}, False, False),
        ({"metadata": {"annotations": 7}, "spec": []}, False, False),
    ],
)
def test_pod_of_a_server_has_its_exact_names(found: dict[str, Any], of_main: bool, of_two: bool) -> None:
    """User, hub and server are compared as they are; pods that end, or have no slot, are none."""
    assert (server_pod.is_pod_of(found, MAIN), server_pod.is_pod_of(found, TWO)) == (of_main, of_two)


def test_hub_without_an_annotation_is_the_namespace() -> None:
    """A pod that names no hub is found for the hub of its namespace, as its limits are."""
    assert server_pod.is_pod_of(pod(hub=None), HubServer(Owner("User", "ann", "jhub"), ""))


def test_only_one_pod_counts() -> None:
    """None is 404, several are 409 with their names; one that ends beside it does no harm."""
    ending = pod("old", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "name": "old"})
    assert server_pod.the_one([ending, pod(), pod("b", server="two")], MAIN) == pod()
    with pytest.raises(Refusal, match="No pod with a GPU slot is the server of 'ann'") as none:
        server_pod.the_one([ending], MAIN)
    with pytest.raises(Refusal, match="Delete all but one") as both:
        server_pod.the_one([pod("b", server="two"), pod("a", server="two")], TWO)
    assert (none.value.status, both.value.status) == (404, 409)
    assert both.value.details == {"pods": ["jhub/a", "jhub/b"]}
    assert "server 'two' of 'ann' (hub 'hub-one')" in both.value.message
    many = server_pod.several((f"jhub/p{n}" for n in range(7)), MAIN)
    assert many.details == {"pods": ["jhub/p0", "jhub/p1", "jhub/p2", "jhub/p3"]}
    assert "7 pods say" in many.message


def test_change_is_for_one_version_of_one_pod() -> None:
    """The patch has uid and version as preconditions, and one annotation."""
    change = PodChange.from_json({"requested": {"generation": 3, "milli": 2000, "later": 1}, "version": "9"})
    assert change.patch(pod()) == {
        "metadata": {
            "uid": "uid-p",
            "resourceVersion": "9",
            "annotations": {REQUESTED: '{"generation":3,"milli":2000,"later":1}'},
        }
    }


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "requested"),
        ({"requested": {"generation": 1, "milli": 1000}}, "version"),
        ({"requested": {"generation": 1, "milli": 1000}, "version": ""}, "version"),
        ({"requested": {"generation": 1, "milli": 1000}, "version": 7}, "version"),
        ({"requested": {"generation": 1, "milli": 1000}, "version": "9" * 65}, "version"),
        ({"requested": "2", "version": "1"}, "requested"),
        ({"requested": {"milli": 1000}, "version": "1"}, "generation"),
        ({"requested": {"generation": 1, "milli": -1}, "version": "1"}, "milli"),
        ({"requested": {"generation": 1, "milli": 1000, "priority": 10}, "version": "1"}, "priority"),
        ({"requested": {"generation": 1, "milli": 1000}, "version": "1", "pod": "other"}, "pod"),
        ({"requested": {"generation": 1, "milli": 1000}, "version": "1", "uid": "u"}, "uid"),
    ],
)
def test_body_is_read_strictly(body: dict[str, Any], field: str) -> None:
    """A body names no pod, and a request is one that the scheduler can read."""
    with pytest.raises(strict.FieldError) as caught:
        PodChange.from_json(body)
    assert caught.value.field == field


def test_long_request_is_refused() -> None:
    """A request may have 4 KiB as it is written, whatever its fields are."""
    room = server_pod.MAX_REQUEST - len(strict.dumps({"generation": 1, "milli": 1, "x": ""}))
    body: dict[str, Any] = {"requested": {"generation": 1, "milli": 1, "x": "a" * room}, "version": "1"}
    assert PodChange.from_json(body).requested.milli == 1
    body["requested"]["x"] += "a"
    with pytest.raises(strict.OversizeError):
        PodChange.from_json(body)


def test_request_above_the_users_limit_is_refused() -> None:
    """The refusal has the error that the server itself would raise; what stands already is accepted."""
    limited = {ALLOCATED: encode(allocated([0], limit=LIMITED))}
    with pytest.raises(Refusal) as caught:
        server_pod.check(pod(annotations=limited), Requested(2, Wish(3000)))
    error = from_json(caught.value.details["error"])
    assert caught.value.status == 422
    assert isinstance(error, LimitExceeded)
    assert (error.limit, error.maximum) == (2000, 2000)
    assert error.message == caught.value.message
    server_pod.check(pod(annotations=limited), Requested(2, Wish(2000)))
    stands = {**limited, REQUESTED: encode(Requested(1, Wish(3000)))}
    server_pod.check(pod(annotations=stands), Requested(2, Wish(3000, priority=3)))
    server_pod.check(pod(), Requested(2, Wish(3000)))


def test_own_worker_is_no_other_server() -> None:
    """A server may ask again for what it has on other nodes: that is its own."""
    limit = replace(LIMITED, milli=0, with_workers=LimitWithWorkers(2000, 2000, LIMITED.source))
    limited = {ALLOCATED: encode(allocated([0], limit=limit))}
    server_pod.check(pod(annotations=limited), Requested(2, Wish(2000)))
    with pytest.raises(Refusal):
        server_pod.check(pod(annotations=limited), Requested(2, Wish(3000)))


def test_server_is_told_its_pod_and_no_more() -> None:
    """Other annotations, labels, spec and status of the pod are left out."""
    ours = {REQUESTED: "2", SERVICE: "{}", WORKER_STATUS: "{}"}
    told = server_pod.to_json(pod(annotations={**ours, "jupyter-gpu.io/worker": "{}", "secret": "x"}))
    expected = {"namespace": "jhub", "name": "p", "uid": "uid-p", "version": "7", "annotations": ours}
    assert told == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(["generation", "milli", "each", "memory", "model", "topology", "priority", "base", "x"]),
    st.integers(0, 9000) | JSON,
)


@given(st.fixed_dictionaries({"requested": FIELDS | JSON, "version": st.just("1") | JSON}))
def test_what_is_written_can_be_read(body: dict[str, Any]) -> None:
    """Any body is refused by its field, or becomes an annotation that says the same and fits."""
    try:
        change = PodChange.from_json(body)
    except strict.FieldError:
        return
    text = change.patch(pod())["metadata"]["annotations"][REQUESTED]
    assert len(text.encode()) <= server_pod.MAX_REQUEST + 64
    assert decode_requested(text) == change.requested
    assert json.loads(text).items() >= {"milli": body["requested"]["milli"]}.items()
