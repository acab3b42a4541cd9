"""The use of GPUs, from Pods and Nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import WORKER, encode
from jupyter_gpu.model.limits.owner import HUB as OF_HUB
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.service import WorkerIdentity
from jupyter_gpu_hub.rules.usage import (
    SERVER,
    ClusterUse,
    PodUse,
    cluster,
    models_held,
    read_node,
    read_pod,
    with_workers,
)

from .builders import HUB, node, pod

ANN = Owner("User", "ann", HUB)


def read(**more: Any) -> PodUse | None:
    """Return the use of a pod, as a watch brings it."""
    return read_pod(pod(**more))


def test_use_is_what_is_held_and_wanted() -> None:
    """One GPU open, half a GPU idle, one more wanted, a quarter not closed yet."""
    found = read(
        wish=2500,
        shares={"a": 1000, "b": 500},
        attached={"a": 1000, "b": 500},
        draining={"c": 250},
        opened=("a",),
        position=3,
        annotations={SERVER: "two"},
    )
    assert found is not None
    assert (found.owner, found.namespace, found.name, found.server) == (ANN, HUB, "p", "two")
    assert (found.milli, found.draining, found.idle, found.waiting, found.position) == (1750, 250, 500, 1000, 3)


def test_gpu_that_is_open_and_rests_is_idle() -> None:
    """One that works is not; a record that says nothing about rest counts each open GPU as working."""
    both = {"a": 1000, "b": 500}
    for rests, idle in (((), 0), (("b",), 500), (("a", "b"), 1500)):
        found = read(shares=both, attached=both, opened=("a", "b"), rests=rests)
        assert found is not None
        assert found.idle == idle


def test_owner_is_the_annotations_user_or_the_namespace() -> None:
    """With the hub that the pod names."""
    other = read(annotations={OF_HUB: "two"})
    alone = read(user="")
    assert other is not None
    assert alone is not None
    assert (other.owner, alone.owner) == (Owner("User", "ann", "two"), Owner("Namespace", HUB))
    assert alone.server is None


@pytest.mark.parametrize(
    ("label", "annotation", "server"),
    [("", None, ""), ("two---1a2b3c4d", "Two", "Two"), ("", "two", "two"), ("two", None, None), (None, None, None)],
)
def test_server_is_the_annotation_and_for_the_unnamed_one_the_empty_label(
    label: str | None, annotation: str | None, server: str | None
) -> None:
    """KubeSpawner writes no annotation for the unnamed server; a label alone is no name, as it is shortened."""
    made = pod(annotations={} if annotation is None else {SERVER: annotation})
    if label is not None:
        made["metadata"]["labels"][SERVER] = label
    found = read_pod(made)
    assert found is not None
    assert found.server == server


def test_pod_that_ends_keeps_what_it_has_and_wants_nothing() -> None:
    """All of it is on its way out."""
    found = read(wish=3000, shares={"a": 1000}, attached={"a": 1000}, deleting=True, position=1)
    assert found is not None
    assert (found.milli, found.draining, found.idle, found.waiting, found.position) == (1000, 1000, 0, 0, None)


def test_finished_pod_counts_while_its_gpus_are_open() -> None:
    """A decision for it is void."""
    assert read(shares={"a": 1000}, phase="Succeeded") is None
    found = read(shares={"a": 1000}, attached={"b": 500}, phase="Failed")
    assert found is not None
    assert (found.held, found.draining) == ({"b": 500}, 500)


def test_pod_without_a_slot_has_none() -> None:
    """Whatever its annotations say."""
    assert read(slot=False, shares={"a": 1000}) is None


def test_inventory_is_read() -> None:
    """A node whose inventory cannot be read has no GPUs."""
    found = node("a", "b", sick=("b",))
    assert [(gpu.uuid, gpu.healthy) for gpu in read_node(found)] == [("a", True), ("b", False)]
    assert read_node({"metadata": {"name": "n"}}) == ()
    assert read_node({"metadata": {"annotations": {"jupyter-gpu.io/inventory": "nonsense"}}}) == ()


def test_cluster_is_added_up() -> None:
    """A whole GPU, a share, one that drains, one that is broken, and a free one."""
    pods = [
        read(name="one", wish=3000, shares={"a": 1000, "b": 400}),
        read(name="two", user="bob", attached={"c": 1000}, shares={}, deleting=True),
        read(name="gone", shares={"z": 1000}),
    ]
    gpus = read_node(node("a", "b", "c", "d", "e", sick=("d",)))
    assert cluster([gpus], [use for use in pods if use]) == ClusterUse(
        total=5000, owned=1000, shares=400, draining=1000, free=1600, unhealthy=1000, waiting=1600
    )
    assert cluster([gpus], []).to_json()["free"] == 4000


def test_models_are_counted_for_each_owner() -> None:
    """A GPU of no node has no model."""
    pods = [read(name="one", shares={"a": 1000, "b": 250, "z": 500}), read(name="two", user="bob", shares={"a": 500})]
    held = models_held([read_node(node("a", "b"))], [use for use in pods if use])
    assert held == {ANN: {"A100": 1250}, Owner("User", "bob", HUB): {"A100": 500}}


MILLI = st.dictionaries(st.sampled_from("abcd"), st.sampled_from([250, 500, 1000]))


@given(st.lists(st.tuples(MILLI, MILLI, st.booleans()), max_size=5), st.frozensets(st.sampled_from("abc")))
def test_parts_of_the_cluster_are_the_whole(pods: list[tuple[dict[str, int], dict[str, int], bool]], sick: Any) -> None:
    """Also where pods claim more than there is."""
    uses = [
        read(name=str(i), shares=shares, attached=attached, deleting=deleting)
        for i, (shares, attached, deleting) in enumerate(pods)
    ]
    found = cluster([read_node(node("a", "b", "c", sick=tuple(sick)))], [use for use in uses if use])
    assert found.total == 3000
    assert found.owned + found.shares + found.draining + found.free + found.unhealthy == found.total
    assert min(found.to_json().values()) >= 0


@pytest.mark.parametrize(
    "odd", [{}, {"metadata": []}, {"metadata": {"annotations": {"jupyter-gpu.io/allocated": "["}}}]
)
def test_odd_objects_are_read(odd: dict[str, Any]) -> None:
    """They have nothing."""
    assert read_pod(odd) is None
    assert read_node(odd) == ()


def test_worker_counts_for_its_notebooks_user() -> None:
    """It has GPUs of another node for it: they are the user's, and nothing that is still waited for."""
    notebook = read(name="ann", wish=4000, shares={"a": 1000}, attached={"a": 1000}, position=2)
    far = {"b": 1000, "c": 500}
    words = {WORKER: encode(WorkerIdentity("uid-ann", "w1"))}
    here = read(name="w1", user="", shares=far, attached=far, draining={"d": 1000}, annotations=words)
    other = read(name="bob", user="bob", wish=1000)
    lost = read(name="w2", user="", shares=far, annotations={WORKER: encode(WorkerIdentity("uid-gone", "w1"))})
    odd = read(name="w3", user="", shares=far, annotations={WORKER: "nonsense"})
    pods = [pod for pod in (here, notebook, other, lost, odd) if pod]
    assert len(pods) == 5
    found = {pod.name: pod for pod in with_workers(pods)}
    changed = {"w1": replace(pods[0], owner=ANN), "ann": replace(pods[1], waiting=1500)}
    assert found == {pod.name: pod for pod in pods} | changed
    assert found["w1"].server is None, "nobody changes its request as that of a server"
    alone = [pod for pod in pods if not pod.notebook]
    assert with_workers(alone) == alone


def test_no_notebook_waits_for_less_than_nothing() -> None:
    """Its wish may be less by now than what its worker has."""
    words = {WORKER: encode(WorkerIdentity("uid-ann", "w1"))}
    pods = [read(name="ann", wish=500), read(name="w1", user="", shares={"b": 1000}, annotations=words)]
    assert [pod.waiting for pod in with_workers(pod for pod in pods if pod)] == [0, 0]
