"""The messages between kube-scheduler and the extender, and the bodies of writes."""

import json
from typing import Any

import pytest

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import ALLOCATED, Allocated
from jupyter_gpu_scheduler.rules import wire
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}
STATE = PodState(uid="u", namespace="ns", name="p")


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_fields_are_read_in_any_case(spell: Any) -> None:
    """Go writes its own names, and reads any case."""
    body = json.dumps({spell("Pod"): POD, spell("NodeNames"): ["a", "b"], spell("Nodes"): None}).encode()
    question = wire.read_extender_args(body, 10_000)
    assert question.nodes == ("a", "b")
    assert question.pod == POD
    fields = {spell("PodName"): "p", spell("PodNamespace"): "ns", spell("PodUID"): "u", spell("Node"): "a"}
    assert wire.read_binding_args(json.dumps(fields).encode(), 1000) == wire.BindingArgs("ns", "p", "u", "a")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"{}", "Pod must be a JSON object"),
        (b'{"Pod": {}}', "no name"),
        (json.dumps({"Pod": POD}).encode(), "nodeCacheCapable"),
        (json.dumps({"Pod": POD, "NodeNames": [1]}).encode(), "list"),
        (b" " * 200, "at most 150"),
        (b"[" * 149, "not valid JSON"),
    ],
)
def test_bad_question_is_refused_in_a_sentence(body: bytes, words: str) -> None:
    """Each sentence becomes the `Error` of the answer."""
    with pytest.raises(strict.FieldError) as error:
        wire.read_extender_args(body, 150)
    assert words in str(error.value)


def test_bind_needs_every_field() -> None:
    """No name may be longer than Kubernetes allows."""
    with pytest.raises(strict.FieldError):
        wire.read_binding_args(b'{"PodName": "p", "PodNamespace": "ns", "PodUID": "u"}', 1000)
    with pytest.raises(strict.FieldError):
        wire.read_binding_args(
            b'{"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "%s"}' % (b"n" * 254), 1000
        )


def test_answers_have_the_names_of_go() -> None:
    """All fields have Go's names; no reason is empty, and few nodes are named."""
    assert wire.filter_result(["a"], {"b": ""}, {"c": "never"}) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "b: not suitable"},
        "FailedAndUnresolvableNodes": {"c": "c: never"},
        "Error": "",
    }
    many = {f"n{number}": "full" for number in range(wire.NAMED + 1)}
    assert wire.filter_result([], many)["FailedNodes"] == many
    assert wire.filter_error("why")["Error"] == "why"
    assert wire.host_priorities({"a": 3}) == [{"Host": "a", "Score": 3}]
    assert wire.bind_result("") == {"Error": ""}


def test_events_name_the_very_pod() -> None:
    """An event has the pod's uid, and the version that it is about, where that is known."""
    about = wire.pod_reference(STATE)
    assert (about["kind"], about["metadata"]["uid"]) == ("Pod", STATE.uid)
    assert "resourceVersion" not in about["metadata"]
    assert wire.pod_reference(STATE, "7")["metadata"] == {**about["metadata"], "resourceVersion": "7"}


def test_events_name_a_node() -> None:
    """An event has the node's name and uid: nodes are in no namespace."""
    about = wire.node_reference("n", "u")
    assert (about["kind"], about["metadata"]) == ("Node", {"name": "n", "uid": "u"})


def test_writes_carry_their_preconditions() -> None:
    """A write names the uid and the version of the pod that was decided about."""
    patch = wire.allocated_patch("u", "7", Allocated(3))
    assert patch["metadata"]["uid"] == "u"
    assert patch["metadata"]["resourceVersion"] == "7"
    assert json.loads(patch["metadata"]["annotations"][ALLOCATED]) == {"observedGeneration": 3, "shares": []}
    binding = wire.binding(STATE, "n", "7", Allocated(3))
    assert binding["target"]["name"] == "n"
    assert (binding["metadata"]["uid"], binding["metadata"]["resourceVersion"]) == ("u", "7")
    assert wire.pod_reference(STATE, "7")["metadata"]["resourceVersion"] == "7"


POD = {"metadata": {"name": "a", "uid": "u"}}


def _preempt(**fields: Any) -> wire.PreemptionArgs:
    return wire.read_preemption_args(json.dumps({"Pod": POD, **fields}).encode(), 10_000)


def test_victims_are_read_and_named_again() -> None:
    """They are read in any case; of the nodes that are kept all victims that kube-scheduler chose are named, as it
    spells them.
    """
    question = _preempt(
        NodeNameToMetaVictims={
            "n": {"Pods": [{"UID": "x"}, {"UID": "y"}], "NumPDBViolations": 2},
            "m": {"pods": [{"uid": "z"}]},
        }
    )
    assert question.pod == POD
    assert question.victims == {"n": ("x", "y"), "m": ("z",)}
    assert wire.preemption_result(question, ["n"]) == {
        "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "x"}, {"UID": "y"}], "NumPDBViolations": 2}}
    }
    assert wire.preemption_result(question, []) == {"NodeNameToMetaVictims": {}}


def test_no_victims_are_no_error() -> None:
    """Maps and lists may be empty, null or missing."""
    none: tuple[dict[str, Any], ...] = ({}, {"NodeNameToMetaVictims": None}, {"NodeNameToVictims": None})
    for fields in none:
        assert _preempt(**fields).victims == {}
    nothing: tuple[Any, ...] = (None, {}, {"Pods": None}, {"Pods": [], "NumPDBViolations": None})
    for victims in nothing:
        question = _preempt(NodeNameToMetaVictims={"n": victims})
        assert (question.victims, question.violations) == ({"n": ()}, {"n": 0})


@pytest.mark.parametrize(
    "fields",
    [
        {"Pod": None},
        {"Pod": {"metadata": {"name": "a"}}},
        {"NodeNameToVictims": {"n": {}}},
        {"NodeNameToMetaVictims": ["n"]},
        {"NodeNameToMetaVictims": {"n": ["x"]}},
        {"NodeNameToMetaVictims": {"n": {"Pods": "x"}}},
        {"NodeNameToMetaVictims": {"n": {"Pods": ["x"]}}},
        {"NodeNameToMetaVictims": {"n": {"Pods": [{"UID": 1}]}}},
        {"NodeNameToMetaVictims": {"n": {"Pods": [{}]}}},
        {"NodeNameToMetaVictims": {"n": {"NumPDBViolations": -1}}},
        {"NodeNameToMetaVictims": {"n": {"NumPDBViolations": "1"}}},
    ],
)
def test_senseless_victims_are_refused(fields: dict[str, Any]) -> None:
    """No pod is ended by a question that can't be read."""
    with pytest.raises(strict.FieldError):
        _preempt(**fields)


def test_number_of_victims_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, and pods of a node, are bounded."""
    monkeypatch.setattr(wire, "MAX_NODES", 1)
    monkeypatch.setattr(wire, "MAX_VICTIMS", 1)
    many: tuple[dict[str, Any], ...] = ({"n": {}, "m": {}}, {"n": {"Pods": [{"UID": "x"}, {"UID": "y"}]}})
    for nodes in many:
        with pytest.raises(strict.FieldError, match=r"at most|more than"):
            _preempt(NodeNameToMetaVictims=nodes)
