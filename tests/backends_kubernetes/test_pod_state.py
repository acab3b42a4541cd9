"""The node plugin's messages about a pod are checked like all input from outside."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules.pod_state import PodUpdate, read_pod_update
from jupyter_gpu.model import strict
from jupyter_gpu_node.agent.pod_events import summary

METADATA: dict[str, Any] = {
    "namespace": "n",
    "name": "p",
    "uid": "u",
    "resourceVersion": "7",
    "annotations": {"a": "b"},
}


def line(**more: Any) -> dict[str, Any]:
    """A good one but for this."""
    return {"pod": {"metadata": {**METADATA, **more.pop("metadata", {})}}, "gone": False, "trouble": "", **more}


def test_message_of_the_node_plugin_is_read() -> None:
    """Every field comes back; of the pod only the fields that the plugin sends."""
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    ours = {"jupyter-gpu.io/attached": "{}"}
    for more in ({}, ending):
        whole = {"metadata": {**METADATA, "annotations": {**ours, "other": "x"}, "labels": {}, **more}, "spec": {}}
        told = {"metadata": {**METADATA, "annotations": ours, **more}}
        assert read_pod_update({"pod": summary(whole), "gone": True, "trouble": "away"}) == PodUpdate(
            told, True, "away"
        )
    assert read_pod_update({"pod": None, "gone": False, "trouble": ""}) == PodUpdate(None, False, "")
    assert summary({"metadata": {"uid": "u"}})["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {"pod": None, "gone": False},
        line(gone="no"),
        line(trouble=None),
        line(pod=[]),
        line(pod={}),
        line(metadata={"uid": ""}),
        line(metadata={"resourceVersion": 7}),
        line(metadata={"annotations": None}),
        line(metadata={"annotations": {"a": 1}}),
        line(metadata={"deletionTimestamp": 0}),
    ],
)
def test_invalid_message_is_refused(wrong: Any) -> None:
    """The error is a sentence, and of one type."""
    with pytest.raises(strict.FieldError):
        read_pod_update(wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*METADATA, "metadata"]), inner),
)


@given(pod=JSON, gone=JSON, trouble=JSON)
def test_any_message_is_read_or_refused(pod: Any, gone: Any, trouble: Any) -> None:
    """A message of any content is read or refused."""
    try:
        told = read_pod_update({"pod": pod, "gone": gone, "trouble": trouble})
    except strict.FieldError:
        return
    assert told.gone == gone
    assert told.pod is None or told.pod["metadata"]["uid"]
