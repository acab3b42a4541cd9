"""The owner of a slot: every source alone can be wrong; together they must not contradict each other."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.kubelet.rules import slots
from jupyter_gpu_node.kubelet.rules.internal_checkpoint import parse
from jupyter_gpu_node.kubelet.rules.slots import (
    CheckpointEntry,
    KubeletReport,
    ListedContainer,
    PodRef,
    Reconciled,
    SlotOwner,
    Unresolved,
)
from jupyter_gpu_node.settings import SLOT
from tests.kubelet.worlds import NODE, pod

A, B = "slot-0000", "slot-0001"
ALICE = PodRef("uid-1", "team", "alice")
LISTED = ListedContainer("team", "alice", "main", (A,))
HELD = CheckpointEntry("uid-1", "main", (A,))
PODS = {"uid-1": pod("uid-1", "alice")}
CLAIM = SlotOwner(A, ALICE, "main")
RUNS = {"containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}


def who(listed: Any = (LISTED,), held: Any = (HELD,), pods: Any = PODS, fresh: Any = None) -> SlotOwner:
    """The pod that has slot A, or Unresolved."""
    found = slots.kubelet_report(A, listed, held, pods)
    return slots.confirm(found, pods.get(found.uid) or fresh, NODE)


def test_all_sources_agree() -> None:
    """The plain case."""
    assert who() == CLAIM
    assert str(who().pod) == "team/alice"


def test_an_init_container_is_not_in_pod_resources() -> None:
    """The kubelet's checkpoint and the API server are enough."""
    made = pod("uid-1", "alice", spec={"initContainers": [{"name": "setup", "resources": {"limits": {SLOT: "1"}}}]})
    assert who(listed=(), held=(CheckpointEntry("uid-1", "setup", (A,)),), pods={"uid-1": made}).container == "setup"


def test_an_init_containers_slot_passes_on_to_a_container() -> None:
    """Both have it in the checkpoint: it is one pod all the same."""
    made = pod("uid-1", "alice", spec={"initContainers": [{"name": "setup", "resources": {"limits": {SLOT: "1"}}}]})
    assert who(held=(CheckpointEntry("uid-1", "setup", (A,)), HELD), pods={"uid-1": made}) == CLAIM


def test_the_api_server_makes_up_for_a_lost_checkpoint() -> None:
    """Only where the pod of that name leaves no doubt."""
    for held in (None, ()):
        assert who(held=held, pods={}, fresh=PODS["uid-1"]) == CLAIM


def test_the_checkpoint_still_has_an_entry_of_a_pod_that_ended() -> None:
    """It is removed when the next pod is admitted; PodResources names the one that runs."""
    old = CheckpointEntry("uid-0", "main", (A,))
    assert who(held=(old, HELD)) == CLAIM
    assert who(held=(old, HELD), pods={**PODS, "uid-0": pod("uid-0", "bob")}) == CLAIM


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"listed": (), "held": ()}, "does not say which pod"),
        ({"listed": (), "held": None}, "does not say which pod"),
        ({"listed": (LISTED, ListedContainer("team", "bob", "main", (A,)))}, "several pods"),
        ({"listed": (), "held": (HELD, CheckpointEntry("uid-2", "main", (A,)))}, "several pods"),
        (
            {"held": (HELD, CheckpointEntry("uid-2", "main", (A,))), "pods": {**PODS, "uid-2": pod("uid-2", "alice")}},
            "several pods",
        ),
        ({"pods": {}}, "does not exist any more"),
        ({"pods": {}, "fresh": pod("uid-2", "alice")}, "does not exist any more"),
        ({"listed": (ListedContainer("team", "bob", "main", (A,)),)}, "two different things"),
        ({"pods": {"uid-1": pod("uid-1", "alice", node="node2")}}, "belongs to another node"),
        (
            {"held": None, "pods": {}, "fresh": pod("uid-1", "alice", metadata={"deletionTimestamp": "x"})},
            "is being deleted",
        ),
        ({"pods": {"uid-1": pod("uid-1", "alice", container="side")}}, "does not ask for one"),
    ],
)
def test_a_contradiction_is_refused_with_a_sentence(sources: Any, words: str) -> None:
    """Closing the wrong pod would leave the right one open."""
    with pytest.raises(Unresolved, match=words):
        who(**sources)


def test_earlier_confirmation_counts_only_unchanged() -> None:
    """While the API server is away."""
    kubelet_report = KubeletReport(A, "uid-1", "team", "alice", "main")
    assert slots.agrees(CLAIM, kubelet_report)
    assert not slots.agrees(None, kubelet_report)
    assert not slots.agrees(CLAIM, KubeletReport(A, "uid-2", "team", "alice", "main"))
    assert not slots.agrees(CLAIM, KubeletReport(A, "", "team", "alice", "main"))
    assert not slots.agrees(CLAIM, KubeletReport(A, "uid-1", "", "", "main"))


def reconcile(known: Any = (), listed: Any = (LISTED,), held: Any = (HELD,), pods: Any = PODS) -> Reconciled:
    """All sources compared; ``known``: claims."""
    return slots.reconcile({owner.slot: owner for owner in known}, listed, held, pods, NODE)


def test_a_plugin_that_lost_its_record_learns_it_again() -> None:
    """From pods that kept theirs."""
    assert reconcile() == Reconciled({A: CLAIM}, learned=(CLAIM,), reported=frozenset({A}))
    assert reconcile([CLAIM]) == Reconciled({A: CLAIM}, reported=frozenset({A}))


def test_a_slot_that_has_changed_hands_is_learned() -> None:
    """The pod that had it is gone, and the plugin was dead meanwhile."""
    old = SlotOwner(A, PodRef("uid-0", "team", "bob"), "main")
    assert reconcile([old]).owners == {A: CLAIM}


def test_slot_that_no_source_knows_is_orphaned() -> None:
    """The pod is gone, or has finished; while any source still names it, it stays."""
    assert reconcile([CLAIM], (), (), {}).orphaned == (CLAIM,)
    assert reconcile([CLAIM], (), None, {"uid-1": pod("uid-1", "alice", status={"phase": "Succeeded"})}).orphaned == (
        CLAIM,
    )
    assert reconcile([CLAIM], (), (), PODS).owners == {A: CLAIM}
    assert reconcile([CLAIM], (), (HELD,), {}).owners == {A: CLAIM}
    assert reconcile([CLAIM], (LISTED,), (), {}).owners == {A: CLAIM}


def test_a_slot_that_is_in_doubt_is_not_learned() -> None:
    """The next start of a container says why."""
    assert reconcile(listed=(LISTED, ListedContainer("team", "bob", "main", (A,)))).learned == ()
    assert reconcile(pods={}).learned == ()


def test_a_pod_that_was_admitted_without_allocate_is_found() -> None:
    """The kubelet lost its checkpoint: the pod runs, asks for a slot, and has none. It can never get a GPU."""
    pods = {"uid-1": pod("uid-1", "alice", status=RUNS)}
    assert reconcile(listed=(), held=(), pods=pods).unguarded == ((ALICE, "main"),)
    assert reconcile(listed=(), held=None, pods=pods).unguarded == ((ALICE, "main"),)
    assert reconcile(pods=pods).unguarded == ()
    assert reconcile([CLAIM], (), (), pods).unguarded == ()  # it got its slot before the kubelet forgot


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Pending"},
        {"phase": "Failed", **RUNS},
        {"containerStatuses": [{"name": "main", "state": {"waiting": {}}}]},
        {"containerStatuses": [{"name": "other", "state": {"running": {}}}]},
        {"containerStatuses": "nonsense"},
    ],
)
def test_pod_that_does_not_run_is_not_unguarded(status: Any) -> None:
    """It may get its slot yet, or needs none any more."""
    assert reconcile(listed=(), held=(), pods={"uid-1": pod("uid-1", "alice", status=status)}).unguarded == ()


def test_a_running_init_container_counts_only_where_the_checkpoint_tells_of_it() -> None:
    """PodResources never does."""
    init = {"initContainers": [{"name": "setup", "resources": {"limits": {SLOT: "1"}}}]}
    status = {"initContainerStatuses": [{"name": "setup", "state": {"running": {}}}]}
    pods = {"uid-1": pod("uid-1", "alice", spec=init, status=status)}
    assert reconcile(listed=(), held=(), pods=pods).unguarded == ((ALICE, "setup"),)
    assert reconcile(listed=(), held=None, pods=pods).unguarded == ()


uids = st.sampled_from(["uid-1", "uid-2"])
names = st.sampled_from(["alice", "bob"])
free = st.sampled_from([(), (A,), (B,), (A, B)])
any_listed = st.lists(st.builds(ListedContainer, st.just("team"), names, st.just("main"), free), max_size=3)
any_held = st.none() | st.lists(st.builds(CheckpointEntry, uids, st.just("main"), free), max_size=3)
any_pods = st.dictionaries(uids, names).map(lambda found: {uid: pod(uid, name) for uid, name in found.items()})


@given(any_listed, any_held, any_pods)
def test_a_slot_is_never_given_to_a_pod_that_a_source_contradicts(listed: Any, held: Any, pods: Any) -> None:
    """Whatever they say."""
    try:
        owner = who(listed, held, pods)
    except Unresolved:
        return
    assert pods[owner.pod.uid]["metadata"]["name"] == owner.pod.name
    assert {item.name for item in listed if A in item.slots} <= {owner.pod.name}
    assert (
        held is None
        or not any(A in item.slots for item in held)
        or owner.pod.uid in {item.uid for item in held if A in item.slots}
    )


@given(any_listed, any_held, any_pods)
def test_reconciling_twice_changes_nothing_more(listed: Any, held: Any, pods: Any) -> None:
    """Nothing is learned or lost by looking again."""
    once = slots.reconcile({}, listed, held, pods, NODE)
    twice = slots.reconcile(once.owners, listed, held, pods, NODE)
    assert twice.owners == once.owners
    assert not twice.learned
    assert not twice.orphaned


def test_a_slot_that_no_living_pod_has_is_stuck() -> None:
    """Only the kubelet can free it: its pod is gone or has ended, and it still lists it.

    Its checkpoint alone may name it until the next pod with a slot comes.
    """
    ended = {"uid-1": pod("uid-1", "alice", status={"phase": "Failed"})}
    assert reconcile().stuck == ()
    assert reconcile(pods={}).stuck == (A,)
    assert reconcile(pods=ended).stuck == (A,)
    assert reconcile(held=(), pods={}).stuck == (A,)
    assert reconcile(listed=(), pods={}).stuck == reconcile(listed=(), pods=ended).stuck == ()
    assert reconcile(held=None).stuck == ()
    assert reconcile(listed=(), held=()).stuck == ()


def test_only_an_unowned_directory_is_abandoned() -> None:
    """Neither one that is claimed, nor one that the kubelet names, nor one that it gave away just now."""
    found = Reconciled({A: CLAIM}, reported=frozenset({B}))
    allocated = {"slot-0002": 1000.0, "slot-0003": 1000.0}
    present = [A, B, "slot-0002", "slot-0003", "slot-0004"]
    now = 1000.0 + slots.GRACE
    assert slots.abandoned(present, found, allocated, now) == ("slot-0004",)
    assert slots.abandoned(present, found, allocated, now + 1) == ("slot-0002", "slot-0003", "slot-0004")


def test_slots_have_names_that_stay() -> None:
    """A higher number only adds some; the kubelet's checkpoint and running pods know the old ones."""
    assert slots.names(2) == (A, B)
    assert slots.names(5)[:2] == slots.names(2)


def test_the_slot_that_was_used_last_is_taken_last() -> None:
    """Slots that must be taken come first."""
    used = {A: 200.0, B: 100.0}
    assert slots.prefer([A, B, "slot-0002"], [], 2, (), used) == ("slot-0002", B)
    assert slots.prefer([A, B, "slot-0002"], [], 3, ("slot-0002",), used) == (B, A, "slot-0002")
    assert slots.prefer([A, B, "slot-0002"], [A], 2, (), used) == (A, "slot-0002")
    assert slots.prefer([A], [A], 1, (), used) == (A,)


def test_a_slot_of_a_container_that_runs_is_not_free() -> None:
    """A kubelet that lost its checkpoint believes so."""
    runs = pod("uid-1", "alice", status=RUNS)
    known = {A: CLAIM}
    assert slots.in_use(A, known, {"uid-1": runs}) == CLAIM
    assert slots.in_use(B, known, {"uid-1": runs}) is None
    assert slots.in_use(A, known, {}) is None
    assert slots.in_use(A, known, PODS) is None
    assert (
        slots.in_use(A, known, {"uid-1": pod("uid-1", "alice", status=RUNS, metadata={"deletionTimestamp": "x"})})
        is None
    )
    assert slots.in_use(A, known, {"uid-1": pod("uid-1", "alice", status={**RUNS, "phase": "Failed"})}) is None


def entry(**changes: Any) -> dict[str, Any]:
    """An entry of the kubelet's checkpoint."""
    plain = {
        "PodUID": "uid-1",
        "ContainerName": "main",
        "ResourceName": SLOT,
        "DeviceIDs": {"-1": [A]},
        "AllocResp": "CgA=",
    }
    return {**plain, **changes}


def checkpoint(*entries: Any) -> bytes:
    """The kubelet's checkpoint."""
    return json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 2**64 - 1}).encode()


def test_the_kubelets_checkpoint_is_read_as_it_is_and_was() -> None:
    """By NUMA node, or a plain list as before Kubernetes 1.20; other resources are left out."""
    assert parse(checkpoint(entry(), entry(ResourceName="example.com/foo")), SLOT) == (HELD,)
    assert parse(checkpoint(entry(DeviceIDs=[A])), SLOT) == (HELD,)
    assert parse(checkpoint(entry(DeviceIDs={"0": [B], "1": [A]})), SLOT) == (CheckpointEntry("uid-1", "main", (A, B)),)
    assert parse(b'{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}', SLOT) == ()


@pytest.mark.parametrize("change", [{"PodUID": 7}, {"PodUID": ""}, {"ContainerName": None}])
def test_invalid_entry_is_left_out(change: Any) -> None:
    """The others still count."""
    assert parse(checkpoint(entry(**change), "nonsense", entry()), SLOT) == (HELD,)
    assert parse(checkpoint(entry(DeviceIDs=7)), SLOT) == (CheckpointEntry("uid-1", "main", ()),)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"Data": []}', b'{"Data": {"PodDeviceEntries": 7}}', b"\xff"])
def test_invalid_checkpoint_is_none(text: bytes) -> None:
    """Not an empty one: nothing can be concluded from it."""
    assert parse(text, SLOT) is None


def test_the_devices_of_a_container_are_in_the_kubelets_checkpoint() -> None:
    """As far as it can be read; what is there counts where our own record does not tell."""
    answer = api.ContainerAllocateResponse(devices=[api.DeviceSpec(container_path="/dev/nvidia0", host_path="/x")])
    told = base64.b64encode(answer.SerializeToString()).decode()
    (held,) = parse(checkpoint(entry(AllocResp=told)), SLOT) or ()
    assert held.devices == frozenset({"/dev/nvidia0"})
    for odd in (None, 7, "?", "CgA=", "AAAA"):
        (other,) = parse(checkpoint(entry(AllocResp=odd)), SLOT) or ()
        assert other.devices is None
    assert slots.unrecorded({A: CLAIM}, {}, [held]) == {A: {"/dev/nvidia0"}}
    assert slots.unrecorded({A: CLAIM}, {A}, [held]) == {}
    assert slots.unrecorded({}, {}, [held]) == {}
    assert slots.unrecorded({A: replace(CLAIM, pod=replace(ALICE, uid="other"))}, {}, [held]) == {}
    assert slots.unrecorded({A: CLAIM}, {}, [HELD]) == slots.unrecorded({A: CLAIM}, {}, None) == {}


def test_pod_can_use_devices_that_all_its_containers_have() -> None:
    """Only slots whose devices are known count."""
    assert slots.common([]) is None
    assert slots.common([frozenset("ab"), frozenset("bc")]) == frozenset("b")
