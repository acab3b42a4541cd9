"""Slots: a pod asks the kubelet for one so that the GPUs of one of its containers can be changed. Pure.

A slot is a name without any hardware behind it, one for each container. The kubelet never says which pod it gave a slot
to; three sources do: PodResources (namespace, name, container), the kubelet's checkpoint (uid, container) and the API
server (all three). Here they are compared; contradictions are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.kube.rules import objects

GRACE = 600.0
"""Seconds in which a slot that the kubelet gave away may not show up anywhere: its container is being prepared."""


@dataclass(frozen=True, slots=True, order=True)
class PodRef:
    """The identity of one pod, also among pods of the same name."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class SlotOwner:
    """The owner of a slot."""

    slot: str
    pod: PodRef
    container: str


@dataclass(frozen=True, slots=True, order=True)
class ListedContainer:
    """A container with slots in PodResources: no uid; no init containers; since Kubernetes 1.34 active pods only."""

    namespace: str
    name: str
    container: str
    slots: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class CheckpointEntry:
    """A container with slots in the kubelet's checkpoint. An init container's slot passes on to another container."""

    uid: str
    container: str
    slots: tuple[str, ...]
    devices: frozenset[str] | None = field(default=None, compare=False)
    """Paths of the devices that it was given; None: not known."""


class Unresolved(Exception):
    """An error for a slot without a certain owner; the text says in plain words why, and what to do."""


def names(count: int) -> tuple[str, ...]:
    """Return the slots of a node; the same after every restart, and a higher count only adds some."""
    return tuple(f"slot-{number:04}" for number in range(count))


def prefer(
    available: Collection[str], must: Collection[str], size: int, known: Collection[str], used: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the slots that the kubelet should take: none with a known owner if possible, then those of oldest use.

    So none changes owners quickly, and a kubelet that forgot the owners gives away others.
    """
    free = sorted(set(available) - set(must), key=lambda slot: (slot in known, used.get(slot, 0.0), slot))
    return (*sorted(must), *free[: max(0, size - len(must))])


def in_use(slot: str, known: Mapping[str, SlotOwner], pods: Mapping[str, Any]) -> SlotOwner | None:
    """Return the living owner of a slot that the kubelet gives away; None if there is none."""
    owner = known.get(slot)
    pod = pods.get(owner.pod.uid) if owner else None
    alive = pod is not None and not objects.finished(pod) and not objects.deleting(pod)
    return owner if alive and owner and owner.container in running(pod, init=True) else None


@dataclass(frozen=True, slots=True)
class KubeletReport:
    """The information of the kubelet about one slot."""

    slot: str
    uid: str
    """Empty where the kubelet's checkpoint does not tell."""
    namespace: str
    """Empty where PodResources does not tell: for an init container."""
    name: str
    container: str


def kubelet_report(
    slot: str, listed: Iterable[ListedContainer], held: Iterable[CheckpointEntry] | None, pods: Mapping[str, Any]
) -> KubeletReport:
    """Return the kubelet's information about ``slot``; ``held`` is None where its checkpoint can't be read.

    Raises `Unresolved` where it contradicts itself or says nothing.
    """
    named = [item for item in listed if slot in item.slots]
    if len({(item.namespace, item.name) for item in named}) > 1:
        raise Unresolved(
            f"The kubelet says that several pods have {slot}. Delete them; new ones get slots of their own."
        )
    holders = [item for item in held or () if slot in item.slots]
    uids = {item.uid for item in holders}
    if len(uids) > 1 and named:  # an entry of a pod that ended is removed when the next pod is admitted
        uids = {uid for uid in uids if _is(pods.get(uid), named[0].namespace, named[0].name)}
    if len(uids) > 1:
        raise Unresolved(
            f"The kubelet's checkpoint says that several pods have {slot}. Delete them and create them anew."
        )
    if not named and not uids:
        raise Unresolved(f"The kubelet does not say which pod has {slot}; it tries again by itself.")
    containers = [item.container for item in named] + [item.container for item in holders]
    namespace, name = (named[0].namespace, named[0].name) if named else ("", "")
    return KubeletReport(slot, next(iter(uids), ""), namespace, name, containers[0])


def confirm(found: KubeletReport, pod: Any, node: str) -> SlotOwner:
    """Return the owner, if ``pod``, as the API server has it, is the one that the kubelet means.

    Raises `Unresolved`. Where the kubelet did not tell the uid, the pod must leave no doubt.
    """
    if pod is None or (found.uid and objects.uid(pod) != found.uid):
        raise Unresolved(f"The pod that has {found.slot} does not exist any more.")
    if found.name and not _is(pod, found.namespace, found.name):
        raise Unresolved(f"The kubelet says two different things about which pod has {found.slot}. Delete the pod.")
    if objects.node_name(pod) != node:
        raise Unresolved(f"The pod that has {found.slot} belongs to another node. Delete the pod.")
    if not found.uid and objects.deleting(pod):
        raise Unresolved(f"It is not sure which pod has {found.slot}: one of that name is being deleted.")
    if found.container not in objects.slots(pod):
        raise Unresolved(
            f"The container {found.container!r} has {found.slot} but does not ask for one. Delete the pod."
        )
    return SlotOwner(found.slot, PodRef(objects.uid(pod), objects.namespace(pod), objects.name(pod)), found.container)


def agrees(owner: SlotOwner | None, found: KubeletReport) -> bool:
    """Tell whether our earlier record is exactly what the kubelet says; a missing field does not agree."""
    return owner is not None and owner == SlotOwner(
        found.slot, PodRef(found.uid, found.namespace, found.name), found.container
    )


@dataclass(frozen=True, slots=True)
class Reconciled:
    """All slots after a comparison of all sources."""

    owners: Mapping[str, SlotOwner] = field(default_factory=dict)
    """Owners by slot."""
    learned: tuple[SlotOwner, ...] = ()
    """Owners that were not known here: the plugin was dead, or lost its record."""
    orphaned: tuple[SlotOwner, ...] = ()
    """Owners known here alone: what is left of them can be removed."""
    unguarded: tuple[tuple[PodRef, str], ...] = ()
    """Pods and containers that run with a slot in their spec which they never got: they can get no GPU."""
    reported: frozenset[str] = frozenset()
    """Slots that have owners according to the kubelet."""
    stuck: tuple[str, ...] = ()
    """Slots that the kubelet still keeps for a pod that is gone, so that no other pod can have them."""
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Devices of containers, by slot, that were not known here."""


def reconcile(
    known: Mapping[str, SlotOwner],
    listed: Iterable[ListedContainer],
    held: Iterable[CheckpointEntry] | None,
    pods: Mapping[str, Any],
    node: str,
) -> Reconciled:
    """Compare what is known here with PodResources, the kubelet's checkpoint and the pods of this node.

    An owner stays for as long as any source knows it, and is learned only when all agree.
    """
    listed = tuple(listed)
    held = None if held is None else tuple(held)
    reported = {slot for item in listed for slot in item.slots} | {slot for item in held or () for slot in item.slots}
    owners: dict[str, SlotOwner] = {}
    orphaned = []
    for slot, owner in known.items():
        if slot in reported or (owner.pod.uid in pods and not objects.finished(pods[owner.pod.uid])):
            owners[slot] = owner
        else:
            orphaned.append(owner)
    learned = []
    for slot in sorted(reported):
        try:
            found = kubelet_report(slot, listed, held, pods)
            owner = confirm(found, pods.get(found.uid), node)
        except Unresolved:
            continue  # reported in plain words by the next start of a container
        if owners.get(slot) != owner:
            owners[slot] = owner
            learned.append(owner)
    living = {uid: pod for uid, pod in pods.items() if not objects.finished(pod)}
    living_names = {(objects.namespace(pod), objects.name(pod)) for pod in living.values()}
    # Of what PodResources lists: the checkpoint names pods that are gone until the kubelet admits the next one.
    kept = [item for item in listed if (item.namespace, item.name) not in living_names]
    in_use = {slot for item in held or () if item.uid in living for slot in item.slots}
    guarded = {(owner.pod, owner.container) for owner in owners.values()}
    unguarded = tuple(item for item in _unguarded(listed, held, pods) if item not in guarded)
    stuck = tuple(sorted({slot for item in kept for slot in item.slots} - in_use))
    return Reconciled(owners, tuple(learned), tuple(orphaned), unguarded, frozenset(reported), stuck)


def abandoned(present: Iterable[str], found: Reconciled, allocated: Mapping[str, float], now: float) -> tuple[str, ...]:
    """Return the slots with directories in ``present`` that no pod has any more, nor is about to get."""
    return tuple(
        slot
        for slot in sorted(present)
        if slot not in found.owners and slot not in found.reported and now - allocated.get(slot, 0.0) > GRACE
    )


def common(found: Sequence[frozenset[str]]) -> frozenset[str] | None:
    """Return what all containers of a pod have; None where nothing is known of any."""
    return frozenset.intersection(*found) if found else None


def unrecorded(
    owners: Mapping[str, SlotOwner], devices: Collection[str], held: Iterable[CheckpointEntry] | None
) -> Mapping[str, frozenset[str]]:
    """Return the devices of containers, by slot, that are in the kubelet's record and not in our own."""
    return {
        slot: item.devices
        for item in held or ()
        if item.devices is not None
        for slot in item.slots
        if slot not in devices and slot in owners and owners[slot].pod.uid == item.uid
    }


def _unguarded(
    listed: Iterable[ListedContainer], held: Iterable[CheckpointEntry] | None, pods: Mapping[str, Any]
) -> tuple[tuple[PodRef, str], ...]:
    """Return containers that started without the slot they ask for. PodResources leaves out init containers."""
    given = {(item.namespace, item.name, item.container) for item in listed}
    recorded = {(item.uid, item.container) for item in held or ()}
    found = []
    for uid, pod in pods.items():
        if objects.finished(pod) or objects.deleting(pod):
            continue
        ref = PodRef(uid, objects.namespace(pod), objects.name(pod))
        started = set(objects.slots(pod)) & running(pod, init=held is not None)
        found += [
            (ref, container)
            for container in sorted(started)
            if (ref.namespace, ref.name, container) not in given and (uid, container) not in recorded
        ]
    return tuple(sorted(found))


def running(pod: Any, *, init: bool) -> frozenset[str]:
    """Return the names of the pod's containers that run, with ``init`` also of its init containers."""
    status = pod.get("status") if isinstance(pod, Mapping) else None
    names = set()
    for key in ("containerStatuses", *(("initContainerStatuses",) if init else ())):
        items = status.get(key) if isinstance(status, Mapping) else None
        for item in items if isinstance(items, list) else ():
            state = item.get("state") if isinstance(item, Mapping) else None
            if isinstance(state, Mapping) and isinstance(state.get("running"), Mapping):
                names.add(str(item.get("name")))
    return frozenset(names)


def _is(pod: Any, namespace: str, name: str) -> bool:
    return pod is not None and (objects.namespace(pod), objects.name(pod)) == (namespace, name)
