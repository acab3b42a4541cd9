"""Paths, objects and errors: what needs no server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kube import Conflict, Gone, Invalid, KubeError, TooMany, Unavailable, errors
from jupyter_gpu.kube.rules import objects, paths

KEYS = [
    *("metadata", "spec", "status", "annotations", "labels", "containers", "resources", "limits", "name", "type"),
    *("initContainers", "conditions", "uid", "phase", objects.SLOT),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
POD = {
    "metadata": {
        "uid": "u",
        "name": "n",
        "namespace": "s",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:01Z",
        "annotations": {"a": "1", "bad": 7},
        "labels": {"l": "x"},
    },
    "spec": {
        "nodeName": "n1",
        "initContainers": [{"name": "i", "resources": {"requests": {objects.SLOT: "1"}}}],
        "containers": [
            {"name": "c", "resources": {"limits": {objects.SLOT: "2", "cpu": "1"}}},
            {"name": "d", "resources": {"limits": {objects.SLOT: "many"}}},
            {"name": "e"},
        ],
    },
    "status": {
        "phase": "Failed",
        "qosClass": "Burstable",
        "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}],
    },
}


def test_every_reader_of_a_pod() -> None:
    """Each reader returns its field."""
    assert (objects.uid(POD), objects.name(POD), objects.namespace(POD)) == ("u", "n", "s")
    assert (objects.resource_version(POD), objects.created(POD)) == ("7", "2026-01-01T00:00:00Z")
    assert (objects.annotation(POD, "a"), objects.annotation(POD, "bad"), objects.annotation(POD, "no")) == (
        "1",
        None,
        None,
    )
    assert objects.labels(POD) == {"l": "x"}
    assert (objects.generation({"metadata": {"generation": 3}}), objects.generation(POD)) == (3, 0)
    assert objects.slots(POD) == {"i": 1, "c": 2}
    assert (objects.node_name(POD), objects.phase(POD)) == ("n1", "Failed")
    assert objects.finished(POD)
    assert objects.deleting(POD)


@given(JSON)
def test_odd_input_gives_the_empty_answer(odd: Any) -> None:
    """Reading never fails, whatever is stored."""
    for read in (objects.uid, objects.name, objects.namespace, objects.resource_version, objects.created):
        assert isinstance(read(odd), str)
    for text in (objects.node_name, objects.phase):
        assert isinstance(text(odd), str)
    assert isinstance(objects.labels(odd), dict)
    assert all(isinstance(name, str) and count > 0 for name, count in objects.slots(odd).items())
    assert objects.annotation(odd, "a") is None
    assert objects.finished(odd) in (False, True)
    assert objects.deleting(odd) in (False, True)
    assert objects.newer(odd, odd) is False
    assert isinstance(objects.generation(odd), int)


@pytest.mark.parametrize(
    ("one", "other", "newer"),
    [("10", "9", True), ("9", "10", False), ("9", "9", False), ("b", "a", True), ("", "", False)],
)
def test_versions_are_compared_as_numbers(one: str, other: str, newer: bool) -> None:
    """Ten is later than nine; of versions that are no numbers, the one that came last counts."""
    versions = [{"metadata": {"resourceVersion": text}} for text in (one, other)]
    assert objects.newer(*versions) is newer
    assert objects.newer_version(one, other) is newer


def test_paths_are_those_of_the_api() -> None:
    """Each one as the API has it."""
    assert paths.pods() == "/api/v1/pods"
    assert paths.pod("a", "b", "status") == "/api/v1/namespaces/a/pods/b/status"
    assert paths.node("n", "status") == "/api/v1/nodes/n/status"
    assert paths.nodes() == "/api/v1/nodes"
    assert paths.event("a", "e") == "/api/v1/namespaces/a/events/e"
    assert paths.limits() == "/apis/jupyter-gpu.io/v1alpha1/gpulimits"
    assert paths.limit("default", "status") == "/apis/jupyter-gpu.io/v1alpha1/gpulimits/default/status"
    assert paths.accounts() == "/apis/jupyter-gpu.io/v1alpha1/gpuaccounts"
    assert paths.account("u") == "/apis/jupyter-gpu.io/v1alpha1/gpuaccounts/u"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert paths.definition("gpulimits") == f"{crds}/gpulimits.jupyter-gpu.io"
    assert paths.lease("a", "l") == "/apis/coordination.k8s.io/v1/namespaces/a/leases/l"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_name_that_leads_elsewhere_is_refused(name: str) -> None:
    """A name from outside names an object, and no other path."""
    with pytest.raises(ValueError, match="no name"):
        paths.pod("default", name)


@given(st.text(min_size=1))
def test_name_stays_one_part_of_the_path(name: str) -> None:
    """Slashes and question marks are quoted."""
    if name not in (".", "..") and name.isprintable():
        path = paths.pod("default", name)
        assert path.count("/") == paths.pod("default", "x").count("/")
        assert not set(path) & set("?#% ") - {"%"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (409, {"reason": "AlreadyExists"}, Conflict),
        (410, {}, Gone),
        (422, {"details": {"causes": [{"field": "spec"}]}}, Invalid),
        (422, {"details": {"causes": [{"field": "metadata.uid"}]}}, Conflict),
        (422, {"details": {"causes": "odd"}}, Invalid),
        (429, {}, TooMany),
        (500, {}, Unavailable),
        (503, "no JSON object", Unavailable),
        (418, None, KubeError),
    ],
)
def test_status_chooses_the_error(status: int, body: Any, kind: type[KubeError]) -> None:
    """The type of an error says what to do about it."""
    error = errors.from_status(status, body)
    assert type(error) is kind
    assert error.message


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("", 1.0), ("soon", 1.0), ("-1", 1.0), ("100000", 60.0)])
def test_retry_after_is_bounded(text: str, seconds: float) -> None:
    """The header comes from outside."""
    error = errors.from_status(429, {}, text)
    assert isinstance(error, TooMany)
    assert error.retry_after == seconds


def test_long_message_is_cut() -> None:
    """Policies can be chatty."""
    assert len(errors.from_status(403, {"message": "x" * 10_000}).message) == errors.MAX_MESSAGE
