"""Trusted pods, which may have GPUs open without being given them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node import settings
from jupyter_gpu_node.holders.rules.known_pods import GPU_OPERATOR, is_trusted

NAMESPACES = ("gpu-operator",)
PRIVILEGED = {"privileged": True}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def pod(namespace: str = "alice", app: str = "nvidia-dcgm", context: Any = None, **spec: Any) -> dict[str, Any]:
    """With one container."""
    container = {"name": "main", "securityContext": context or {}}
    return {
        "metadata": {"namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [container], **spec},
    }


@pytest.mark.parametrize(
    ("given_pod", "known"),
    [
        (pod("gpu-operator", app=""), True),
        (pod(), False),  # anybody may set a label
        (pod(context=PRIVILEGED), True),
        (pod(context={"capabilities": {"add": ["SYS_ADMIN"]}}), True),
        (pod(context={"capabilities": {"add": ["ALL"]}}), True),
        (pod(context={"capabilities": {"add": ["NET_ADMIN"]}}), False),
        (pod(context={"privileged": "true"}), False),
        (pod(app="nvidia-dcgm-2", context=PRIVILEGED), False),
        (pod(context=PRIVILEGED, hostUsers=False), False),  # privileged in a user namespace is no master of the node
        (pod(context=PRIVILEGED, hostUsers=True), True),
    ],
)
def test_label_counts_only_on_a_pod_that_controls_the_node(given_pod: dict[str, Any], known: bool) -> None:
    """A namespace counts by itself, as only administrators make pods there."""
    assert is_trusted(given_pod, NAMESPACES, GPU_OPERATOR) is known


@pytest.mark.parametrize("namespace", ["alice", "gpu-operator"])
def test_pod_with_a_slot_is_never_trusted(namespace: str) -> None:
    """It is given its GPUs, and may hold no other."""
    notebook = pod(namespace, context=PRIVILEGED)
    notebook["spec"]["containers"][0]["resources"] = {"limits": {"jupyter-gpu.io/slot": "1"}}
    assert not is_trusted(notebook, NAMESPACES, GPU_OPERATOR)


@given(odd=anything, context=anything, capabilities=anything, labels=anything)
def test_malformed_pods_are_not_trusted(odd: Any, context: Any, capabilities: Any, labels: Any) -> None:
    """Whatever stands where something else is expected."""
    found = (odd, pod(context=context), pod(context={"capabilities": capabilities}), {"metadata": {"labels": labels}})
    for one in (*found, {"spec": odd}, {**pod(), "spec": {"containers": odd}}):
        assert not is_trusted(one, NAMESPACES, GPU_OPERATOR)


@pytest.mark.parametrize("label", ["", "app", "app=", "=exporter"])
def test_label_without_a_value_is_refused(label: str) -> None:
    """Half a label would name more than was meant."""
    with pytest.raises(ValueError, match="systemLabels"):
        settings.Settings(system_labels=(label,))
