"""States of pods from a watch: rules that hold at every instant, and the devices that a pod could open.

Pure. A moment has two times of the monotonic clock: when the API server wrote it at the earliest (``managedFields`` has
whole seconds), and when it was heard. The truth lies in between, however busy the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    SERVICE,
    WORKER,
    Allocated,
    Attached,
    Requested,
    Wish,
    decode_allocated,
    decode_attached,
    decode_requested,
)
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.service import decode_service
from tests.cluster.whole.judge import Interval

WHOLE = 1000


@dataclass(frozen=True)
class PodState:
    """A pod as it was written once."""

    name: str
    uid: str
    node: str
    phase: str
    deleting: bool
    ready: bool
    restarts: int
    ended: str
    """The reasons of the containers' last ends, in the kubelet's words."""
    address: str
    requested: Requested | None
    allocated: Allocated | None
    attached: Attached | None
    annotations: Mapping[str, str]

    @property
    def wanted(self) -> int:
        """Milli that are asked for."""
        return self.requested.milli if self.requested else 0

    @property
    def granted(self) -> dict[str, int]:
        """Milli by uuid, as decided."""
        return {share.uuid: share.milli for share in self.allocated.shares} if self.allocated else {}

    @property
    def usable(self) -> dict[str, int]:
        """Milli by uuid that can be opened."""
        return {share.uuid: share.milli for share in self.attached.shares} if self.attached else {}

    @property
    def draining(self) -> dict[str, int]:
        """Milli by uuid that are given back and still open."""
        return {share.uuid: share.milli for share in self.attached.draining} if self.attached else {}

    @property
    def held(self) -> dict[str, int]:
        """Milli by uuid that no other pod may have now, also of a pod that is being deleted: its processes go on for as
        long as it takes. Of one that is finished the kubelet itself says that none is left.
        """
        if self.phase in ("Succeeded", "Failed"):
            return {}
        revoked = self.allocated.pending(self.attached) if self.allocated else ()
        all_of_them = (self.granted, self.usable, self.draining, *({share.uuid: share.milli} for share in revoked))
        return {uuid: max(each.get(uuid, 0) for each in all_of_them) for uuid in set().union(*all_of_them)}

    @property
    def settled(self) -> bool:
        """Whether what is decided is what is so."""
        return self.granted == self.usable and not self.draining


@dataclass(frozen=True)
class Moment:
    """One change that a watch reported."""

    number: int
    kind: str
    """added, changed, removed"""
    written: float
    heard: float
    state: PodState


@dataclass(frozen=True)
class Asked:
    """A wish that a test wrote: when it began to, and when that was surely over (``inf`` where it is unknown)."""

    start: float
    end: float
    text: str


def earliest(moments: Sequence[Moment], asked: Iterable[Asked] = ()) -> list[float]:
    """Return for each moment of one pod, in order, the time before which it was surely not written.

    Not before the ones that came before it, and not before anybody began to write the wish that it shows first. All
    wishes that were written have to be among ``asked``, but for those of texts that are not among them at all.
    """
    wishes = tuple(asked)
    bounds: list[float] = []
    bound, wish = -math.inf, None
    for moment in moments:
        bound = max(bound, moment.written)
        before, wish = wish, moment.state.annotations.get(REQUESTED)
        if bounds and wish != before:
            causes = [
                one.start for one in wishes if one.text == wish and one.start <= moment.heard and one.end >= bound
            ]
            bound = max([bound, min(causes)] if causes else [bound])
        bounds.append(bound)
    return bounds


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """Read the API's JSON. Annotations that cannot be read fail the test: only the product writes them."""

    def decoded(key: str, decode: Any) -> Any:
        text = objects.annotation(pod, key)
        return None if text is None else decode(text)

    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    return PodState(
        name=objects.name(pod),
        uid=objects.uid(pod),
        node=objects.node_name(pod),
        phase=objects.phase(pod),
        deleting=objects.deleting(pod),
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or []),
        restarts=sum(int(each.get("restartCount", 0)) for each in containers),
        ended=" ".join(map(_ending, containers)).strip(),
        address=str(status.get("podIP") or ""),
        requested=decoded(REQUESTED, decode_requested),
        allocated=decoded(ALLOCATED, decode_allocated),
        attached=decoded(ATTACHED, decode_attached),
        annotations=dict((pod.get("metadata") or {}).get("annotations") or {}),
    )


def _ending(container: Mapping[str, Any]) -> str:
    last = (container.get("lastState") or {}).get("terminated") or {}
    return f"{last.get('reason')} {last.get('exitCode')} at {last.get('finishedAt')}" if last else ""


def written(pod: Mapping[str, Any], key: str) -> float:
    """Seconds since the epoch before which this annotation was not written: to the second, and never too late."""
    metadata = pod.get("metadata") or {}
    times = [
        str(entry["time"])
        for entry in metadata.get("managedFields") or ()
        if f"f:{key}" in (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:annotations") or {})
        and entry.get("time")
    ]
    return datetime.fromisoformat(max(times, default=str(metadata.get("creationTimestamp")))).timestamp()


def broken_rules(pods: Iterable[PodState]) -> list[str]:
    """Return the rules that these pods break at one instant, in words."""
    owners: dict[str, dict[str, int]] = {}
    every = {f"{pod.name} ({pod.uid[:8]})": pod for pod in pods}
    for name, pod in every.items():
        for uuid, milli in pod.held.items():
            owners.setdefault(uuid, {})[name] = milli
    return [
        f"{uuid} belongs to {', '.join(f'{name}: {_claim(every[name], uuid)}' for name in shares)}"
        for uuid, shares in owners.items()
        if sum(shares.values()) > WHOLE
    ]


def _claim(pod: PodState, uuid: str) -> str:
    """Describe a pod's hold on a GPU, in words."""
    parts = {"decided": pod.granted, "attached": pod.usable, "draining": pod.draining}
    return " and ".join(f"{word} {of[uuid]}" for word, of in parts.items() if uuid in of)


def with_parts(pods: Sequence[PodState]) -> list[PodState]:
    """Return the pods with the wishes that they are to be given themselves: those of notebooks without workers' parts.

    A part whose worker is not there yet belongs to nobody, so a notebook with one has an amount that it does not want.
    """
    parts = {
        part.uid: part.milli
        for pod in pods
        if SERVICE in pod.annotations and WORKER not in pod.annotations
        for part in decode_service(pod.annotations[SERVICE]).workers
    }
    there = {pod.uid for pod in pods}
    found = []
    for pod in pods:
        if WORKER in pod.annotations:
            found.append(_wishing(pod, 0 if pod.deleting else parts.get(pod.uid, 0)))
        elif SERVICE in pod.annotations:
            own = decode_service(pod.annotations[SERVICE]).workers
            missing = any(part.milli and part.uid not in there for part in own)
            found.append(_wishing(pod, -1 if missing else pod.wanted - sum(part.milli for part in own)))
        else:
            found.append(pod)
    return found


def _wishing(pod: PodState, milli: int) -> PodState:
    """Return the pod with another amount; -1 is never what it has."""
    wish = pod.requested.wish if pod.requested else Wish(0)
    return replace(pod, requested=Requested(0, replace(wish, milli=milli)))


def unsettled(pods: Sequence[PodState], gpus: Mapping[str, Sequence[Gpu]]) -> list[str]:
    """Why this is not yet what is wanted, in words: empty when nothing is left to do. ``gpus`` by node."""
    used: dict[str, int] = {}
    for pod in pods:
        for uuid, milli in pod.held.items():
            used[uuid] = used.get(uuid, 0) + milli
    found = []
    for pod in pods:
        has = sum(pod.granted.values())
        if not pod.settled:
            found.append(f"{pod.name}: decided {pod.granted}, attached {pod.usable}, draining {pod.draining}")
        elif has > pod.wanted:
            found.append(f"{pod.name} has {has}, wants {pod.wanted}")
        elif has < pod.wanted:
            piece = min(WHOLE, pod.wanted - has)
            idle = [
                gpu.uuid
                for gpu in gpus[pod.node]
                if gpu.healthy and gpu.uuid not in pod.held and WHOLE - used.get(gpu.uuid, 0) >= piece
            ]
            if idle:
                found.append(f"{pod.name} has {has}, wants {pod.wanted}, and {', '.join(idle)} is idle")
    return found


@dataclass(frozen=True)
class Openings:
    """The times at which one pod's processes were allowed to open each device, and had to be able to. By path."""

    may: Mapping[str, list[Interval]]
    must: Mapping[str, list[Interval]]


def openings(moments: Sequence[Moment], gpus: Iterable[Gpu], asked: Iterable[Asked] = ()) -> Openings:
    """Return when devices may and must open for one pod (one uid), from all its moments in order.

    It may from when it was decided at the earliest (``asked``: the wishes, which make that more exact) until the node
    plugin's word that it is closed was heard; it must from when the node plugin's word was heard until it was decided
    otherwise. What is taken back before the node plugin said that it is attached may be open until the node plugin's
    next word: no pod on that node gets it before. And what was taken back and given again must open only from the next
    word: the one before may tell of rules that are no more, where the node plugin died between the two.
    """
    devices = {gpu.uuid: gpu.path for gpu in gpus}
    may: dict[str, list[Interval]] = {}
    must: dict[str, list[Interval]] = {}
    may_from: dict[str, float] = {}
    must_from: dict[str, float] = {}
    unsaid: dict[str, Attached | None] = {}
    outdated: dict[str, Attached | None] = {}
    before: set[str] = set()
    for moment, written in zip(moments, earliest(moments, asked), strict=True):
        granted, usable = set(moment.state.granted), set(moment.state.usable)
        for uuid in granted | usable:
            may_from.setdefault(uuid, written)
        outdated = {uuid: word for uuid, word in outdated.items() if word == moment.state.attached}
        outdated |= dict.fromkeys(usable - granted, moment.state.attached)
        for uuid in (granted & usable) - must_from.keys() - outdated.keys():
            must_from[uuid] = moment.heard
        for uuid in must_from.keys() - (granted & usable):
            must.setdefault(devices.get(uuid, uuid), []).append(Interval(must_from.pop(uuid), written))
        for uuid in may_from.keys() - granted - usable:
            if uuid not in before and unsaid.setdefault(uuid, moment.state.attached) == moment.state.attached:
                continue
            may.setdefault(devices.get(uuid, uuid), []).append(Interval(may_from.pop(uuid), moment.heard))
        unsaid = {uuid: word for uuid, word in unsaid.items() if uuid in may_from.keys() - granted - usable}
        before = usable
    for uuid, start in may_from.items():
        may.setdefault(devices.get(uuid, uuid), []).append(Interval(start, math.inf))
    for uuid, start in must_from.items():
        must.setdefault(devices.get(uuid, uuid), []).append(Interval(start, math.inf))
    positive = {path: [each for each in found if each.start < each.end] for path, found in must.items()}
    return Openings(may, positive)
