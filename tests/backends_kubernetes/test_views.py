"""The view of a pod, made from any JSON of it."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.kubernetes.rules import event_texts
from jupyter_gpu.backends.kubernetes.rules.views import KnownState, Node, Records, advance, answered, compose, read
from jupyter_gpu.backends.kubernetes.settings import Settings
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, REQUESTED, Requested, Wish, encode
from jupyter_gpu.model.gpu import AMD, GpuShare, Holder
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import View
from tests.builders import GIB, allocated, attached, inventory, requested, uuid

UNENFORCED = Node("n1", False, inventory(2), unenforced="simulated GPUs have no driver")


def a_pod(**texts: str) -> dict[str, Any]:
    """Return a pod with these annotations, as text."""
    return {"metadata": {"uid": "u", "annotations": {f"jupyter-gpu.io/{key}": text for key, text in texts.items()}}}


def known_state(**fields: Any) -> KnownState:
    """Return the known state of a pod on a node with two GPUs."""
    return KnownState(**{"instance": "i", "node": Node("n1", False, inventory(2)), **fields})


def types(view: View) -> list[str]:
    """Return the types of its conditions."""
    return [condition.type for condition in view.conditions]


def test_view_of_a_pod_is_complete() -> None:
    """Each annotation is where it belongs; the card has its user."""
    texts = {
        "requested": encode(requested(2)),
        "allocated": encode(allocated([0, 1])),
        "attached": encode(attached([0, 1])),
    }
    seen = known_state(pod=a_pod(**texts), holders={uuid(1): (Holder(7, "python"),)})
    view = compose(3, seen, Settings(limit=1500, fractions=(250,)))
    assert (view.version, view.instance, view.backend, view.total, view.limit) == (3, "i", "kubernetes", 2000, 1500)
    assert view.steps == (0, 250, 1000, 1500)
    assert (view.status.phase, types(view)) == (Phase.READY, [])
    assert [len(card.users) for card in view.gpus] == [0, 1]


def test_kinds_of_the_node_say_which_amounts_there_are() -> None:
    """The slider offers whole GPUs alone where none has time shares, unless other nodes may have others."""
    node = Node("n1", False, tuple(replace(gpu, vendor=AMD) for gpu in inventory(2, models=["MI300X"])))
    view = compose(1, known_state(node=node), Settings(fractions=(250,)))
    assert ([kind.model for kind in view.kinds], view.steps) == (["MI300X"], (0, 1000, 2000))
    service = a_pod(service='{"generation":1,"workers":[],"elsewhere":1000}')
    assert compose(1, known_state(node=node, pod=service), Settings(fractions=(250,))).steps == (
        0,
        250,
        1000,
        2000,
        3000,
    )
    assert compose(1, known_state(node=None), Settings()).kinds == ()


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("told", [None, False, True])
def test_choice_to_lend_is_offered_where_it_has_an_effect(told: bool | None, gate: bool) -> None:
    """The scheduler tells it where the request decides; without a gate on the node nothing can be lent."""
    node = Node("n1", False, tuple(replace(gpu, gate=gate) for gpu in inventory(2)))
    share = GpuShare(uuid(0), 1000, 60 * GIB)
    pod = a_pod(allocated=encode(replace(allocated([0]), shares=(share,), lendable=told)))
    view = compose(1, known_state(node=node, pod=pod), Settings())
    assert view.lendable is (told if gate else None)
    assert ([card.keeps for card in view.gpus], view.gpus[0].exclusive) == ([60 * GIB], False)


ML = Source(SourceKind.GROUP, "ml", "root", 1777800000)


@pytest.mark.parametrize(
    ("of_user", "own", "limit", "steps"),
    [
        (PodLimit(1000, 4000, ML), None, 1000, (0, 500, 1000)),
        (PodLimit(1000, 4000, ML), 500, 500, (0, 500)),
        (PodLimit(4000, 4000, ML), None, 2000, (0, 500, 1000, 2000)),
        (PodLimit(500, 500, ML), None, 500, (0, 500)),
        (PodLimit(0, 0, ML), None, 0, (0,)),
        (PodLimit(None, None, ML), None, 2000, (0, 500, 1000, 2000)),
        (None, 1000, 1000, (0, 500, 1000)),
    ],
)
def test_slider_ends_at_the_least_limit(
    of_user: PodLimit | None, own: int | None, limit: int, steps: tuple[int, ...]
) -> None:
    """Its end is the least of the user's limit, the server's own and what there is."""
    pod = a_pod(allocated=encode(allocated(limit=of_user)))
    view = compose(0, known_state(pod=pod), Settings(limit=own, fractions=(500,)))
    assert (view.limit, view.steps, view.user_limit) == (limit, steps, of_user)


def test_lowered_limit_has_a_condition() -> None:
    """The condition says what is taken back and when, as long as there is something to take back."""
    lowered = PodLimit(1000, 1000, ML, 1795617000)
    texts = {"requested": encode(requested(2)), "attached": encode(attached([0, 1]))}
    view = compose(0, known_state(pod=a_pod(allocated=encode(allocated([0, 1], limit=lowered)), **texts)), Settings())
    assert types(view) == ["LimitLowered"]
    assert "set for group ml by root on 3 May. This server has 2 GPUs: 1 GPU" in view.conditions[0].message
    assert types(compose(0, known_state(pod=a_pod(allocated=encode(allocated([0], limit=lowered)))), Settings())) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"node": None}, ["LookingForGpus"]),
        ({"node": None, "node_trouble": "it hung up"}, ["NodePluginUnreachable"]),
        ({"node_trouble": "it hung up"}, ["NodePluginUnreachable"]),
        ({"node": Node("n", True, ())}, ["NoGpu"]),
        ({"node": Node("n", True, inventory(1))}, ["Simulated"]),
        ({"cluster_trouble": "refused"}, ["ClusterUnreachable"]),
        ({"gone": True}, ["PodGone"]),
        ({"pod": {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}}, ["PodEnding"]),
        ({"pod": a_pod(requested="many")}, ["InvalidRequest"]),
        ({"pod": a_pod(allocated="{}", attached="[")}, ["StateDamaged", "StateDamaged"]),
        ({"pod": a_pod(allocated=encode(allocated({0: 500})))}, []),
        ({"pod": a_pod(allocated=encode(allocated({0: 500}))), "node": UNENFORCED}, ["ShareNotEnforced"]),
        ({"pod": a_pod(allocated=encode(allocated([0]))), "node": UNENFORCED}, []),
        ({"node": replace(UNENFORCED, taken={uuid(0): "Late.", uuid(1): "Late."})}, ["ShareTaken"]),
        ({"events": ({"reason": "Killing", "message": "Stopping container"},)}, ["Killing"]),
    ],
)
def test_each_trouble_has_a_condition(fields: dict[str, Any], expected: list[str]) -> None:
    """There is one condition for each trouble."""
    assert types(compose(0, known_state(**fields), Settings())) == expected


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "The GPU of this node is simulated: it can"), (2, "All 2 GPUs of this node are simulated: they")],
)
def test_simulated_gpus_are_told_in_their_number(count: int, words: str) -> None:
    """One GPU is no "they"."""
    (told,) = compose(0, known_state(node=Node("n", True, inventory(count))), Settings()).conditions
    assert told.message.startswith(words)


ANNOTATION = st.text(max_size=30) | st.sampled_from(
    [encode(requested(2)), encode(allocated([0, 7])), encode(attached([1], draining=[0]))]
)


@given(
    st.dictionaries(st.sampled_from([REQUESTED, ALLOCATED, ATTACHED]), ANNOTATION),
    st.text(max_size=40),
    st.lists(
        st.dictionaries(st.sampled_from(["reason", "message", "lastTimestamp"]), st.text(max_size=30)), max_size=6
    ),
)
def test_view_of_any_annotations_can_be_sent(
    annotations: dict[str, str], trouble: str, events: list[dict[str, str]]
) -> None:
    """No annotation of a pod can break the panel."""
    pod = {"metadata": {"annotations": annotations}}
    seen = known_state(pod=pod, node_trouble=trouble, cluster_trouble=trouble, events=tuple(events))
    view = compose(0, seen, Settings())
    assert View.from_json(view.to_json()).to_json() == view.to_json()


@pytest.mark.parametrize(
    ("records", "wish", "highest", "generation"),
    [
        (Records(), Wish(1000), 0, 1),
        (Records(requested(1, generation=3)), Wish(2000), 0, 4),
        (Records(requested(1, generation=3)), Wish(1000), 0, 3),
        (Records(Requested(0, Wish(1000))), Wish(1000), 0, 1),
        (Records(Requested(0, Wish(1000)), allocated(generation=7)), Wish(2000), 0, 8),
        (Records(Requested(0, Wish(1000)), None, attached(generation=7)), Wish(2000), 0, 8),
        (Records(Requested(0, Wish(1000)), allocated(generation=0)), Wish(2000), 5, 6),
        (Records(None, allocated(generation=7)), Wish(2000), 0, 8),
    ],
)
def test_generations_count_from_the_highest_seen(records: Records, wish: Wish, highest: int, generation: int) -> None:
    """They count from the highest ever seen, whatever was written by hand between."""
    after = advance(records, wish, highest)
    assert (after.generation, after.wish) == (generation, wish)


def test_same_wish_asked_anew_is_a_new_generation() -> None:
    """The same wish again requests a share that was taken away; other wishes count as usual."""
    records = Records(requested(1, generation=3))
    assert advance(records, Wish(1000), anew=True).generation == 4
    assert advance(records, Wish(2000), anew=True).generation == 4


def test_next_request_keeps_what_is_not_the_wish() -> None:
    """The time until which nothing is parked stays with the next wish, and so do fields of a newer version."""
    records = Records(requested=Requested(3, Wish(1000), {"newer": 1}, keep=1_780_000_000))
    assert advance(records, Wish(2000)) == Requested(4, Wish(2000), {"newer": 1}, keep=1_780_000_000)


@pytest.mark.parametrize(
    ("records", "generation", "expected"),
    [
        (Records(requested(0)), 1, True),  # nothing wanted, nothing held
        (Records(requested(1)), 1, False),
        (Records(requested(1), allocated([0])), 1, False),
        (Records(requested(1), allocated([0]), attached([0])), 1, True),
        (Records(requested(2), allocated([0]), attached([0])), 1, True),  # waits for the rest
        (Records(requested(1, generation=2), allocated([0]), attached([0])), 2, False),  # of the wish before
        (Records(requested(1, generation=3), allocated([0]), attached([0])), 2, True),  # another wish came after it
        (Records(requested(0), allocated([]), attached([0])), 1, False),  # revoked, not yet closed
        (Records(requested(0), allocated([]), attached([], draining=[0])), 1, False),  # holders are not known yet
        (Records(requested(0), allocated([]), attached([], draining=[0], holders=[Holder(1, "x")])), 1, True),
        (Records(requested(0), None, attached([], draining=[0])), 1, False),
        (Records(), 1, False),
    ],
)
def test_request_is_answered_when_all_is_done(records: Records, generation: int, expected: bool) -> None:
    """It is answered when cluster and node have done what can be done now."""
    assert answered(records, generation) is expected


def test_unseen_pod_has_no_records() -> None:
    """Before the first state of the cluster there are no records."""
    assert read(None) == Records()


def event(reason: str, message: str, time: str) -> dict[str, Any]:
    """Return an Event as the API has it."""
    return {"reason": reason, "message": message, "lastTimestamp": time}


def test_latest_event_of_each_kind_is_shown() -> None:
    """Plain words come first, then Kubernetes' own; unknown kinds are left out, but for those of a newer version of
    ours.
    """
    events = [
        event("GpusPartial", "1 of 2", "2026-01-01T00:00:05Z"),
        event("GpusPartial", "0 of 2", "2026-01-01T00:00:01Z"),
        event("Pulled", "image", "2026-01-01T00:00:09Z"),
        event("GpuNews", "of tomorrow", "2026-01-01T00:00:02.123456Z"),
        event("Evicted", "", "2026-01-01T00:00:07Z"),
    ]
    waiting = event_texts.conditions(events, Phase.WAITING)
    assert [condition.type for condition in waiting] == ["Evicted", "GpusPartial", "GpuNews"]
    assert waiting[0].message.endswith("Save your work now.")
    assert waiting[1].message.endswith("Kubernetes says: 1 of 2")
    assert waiting[2].message == "Kubernetes says: of tomorrow"
    assert [condition.type for condition in event_texts.conditions(events, Phase.READY)] == ["Evicted", "GpuNews"]


def test_number_of_events_is_limited() -> None:
    """A panel is no log; odd times are no error."""
    events = [{"reason": f"Gpu{n}", "series": {"lastObservedTime": f"2026-01-01T00:00:0{n}Z"}} for n in range(9)]
    told = event_texts.conditions([*events, {}, {"reason": None, "lastTimestamp": 7}], Phase.READY)
    assert [condition.type for condition in told] == ["Gpu8", "Gpu7", "Gpu6", "Gpu5"]
