"""One pod of this node as the agent knows it, and its next step. No I/O but the calls that change rules."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, Holder
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_node.agent.rules.pod_view import PodView, without
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.holders.rules.rights import ReleasingPod, Rights, holders
from jupyter_gpu_node.holders.scanner import HolderScan, inner_pid

FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
"""Seconds between two scans for a device that should be closed: few at first, backing off."""
NEWS = 5.0
"""Seconds between two writes of which only the second names other holders."""
MOVING, MOVING_ROUNDS = 5.0, 3
"""Seconds and scans after which a pod that could never be frozen is believed to have open only what it shows."""
_NOTHING = Attached(0)


class Evidence(Protocol):
    """The result of a scan, for as long as it holds (`agent.evidence`)."""

    @property
    def scan(self) -> HolderScan:
        """The result itself."""

    def stands(self, pod: ManagedPod, wanted: Mapping[str, Gpu], rights: Rights, now: float) -> bool:
        """Tell whether it still holds."""


@dataclass(slots=True)
class ManagedPod:
    """The state of one pod. Only its own task and, under `lock`, the kubelet's call change it."""

    uid: str
    view: PodView | None = None
    """The pod's view; None: not known yet, or gone from the API server."""
    guard: GuardedPod | None = None
    """The pod's guard; None: it has no group, or it was not seen yet."""
    attached: Attached | None = None
    """The actual state, recorded or about to be."""
    recorded: Attached | None = None
    """The API server's record, as far as we know."""
    version: str = ""
    """Version of our last write."""
    granted: dict[str, int] = field(default_factory=dict)
    """Milli by uuid that the rules in force are for."""
    settled: bool = False
    """Whether its holdings are known: once guarded, or after the first scan if this process did not guard it anew."""
    unclosed: bool = False
    """Whether its group could not be closed: what it opens is unknown, so no other pod gets anything new."""
    waits: bool = False
    """Whether a grant waits for another pod."""
    announced: bool = False
    """Whether the kubelet announced one of its containers."""
    reported: bool = False
    """Whether the API server ever reported it; else only an earlier process knew it."""
    warned: bool = False
    """Whether an Event said that it ran unguarded."""
    open: frozenset[str] | None = None
    """UUIDs that its processes have open, as two scans in a row found; None: not known yet."""
    last_open: frozenset[str] | None = None
    """UUIDs that the last scan found open."""
    lacks: frozenset[str] = frozenset()
    """UUIDs of GPUs whose devices its containers were created without."""
    began: int = 0
    """Start of its first process, in clock ticks after boot, or the earliest possible one; 0 where it is unknown."""
    unfrozen_scans: int = 0
    """Scans in a row during which it could not be frozen."""
    unfrozen_since: float = 0
    """Time of the first of these, on the clock of `time.monotonic`."""
    missing: dict[str, float] = field(default_factory=dict)
    """Time, by uuid, since when it is denied and not known to be closed, on the clock of `time.monotonic`."""
    evidence: Evidence | None = None
    """Evidence of GPUs that should be closed but that the last scan found open."""
    pause: float = FIRST_PAUSE
    failures: int = 0
    written: float = 0
    """Time of the last write, on the clock of `time.monotonic`."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def holding(self) -> Holding:
        """The pod's present holdings."""
        order = (self.view.created if self.view else "", self.uid)
        shares = {share.uuid: share.milli for share in self.attached.shares} if self.attached else {}
        drains = {item.uuid: item.milli for item in self.attached.draining} if self.attached else {}
        allowed = self.guard.allowed if self.guard else frozenset[str]()
        return Holding(order, {**shares, **self.granted}, drains, self.settled and not self.unclosed, allowed)

    @property
    def claims(self) -> Collection[str]:
        """Uuids that no other pod's processes have by right: those that its rules allow.

        A record that says more than they do is older than they are. It counts only where there are none yet.
        """
        return self.guard.allowed if self.guard and self.guard.known else self.holding.has.keys()

    @property
    def rights(self) -> frozenset[str] | None:
        """Uuids that its processes may have open; None while that is not known."""
        if not self.settled or self.guard is None or not self.guard.known:
            return None
        holding = self.holding
        return frozenset(holding.has) | frozenset(holding.drains)

    @property
    def releasing(self) -> ReleasingPod:
        """The pod as one that gives GPUs back."""
        return ReleasingPod(self.uid, self.began)

    @property
    def drains(self) -> bool:
        """Whether something is not proven closed."""
        return bool(self.attached and self.attached.draining)

    def observe_open(self, found: frozenset[str]) -> bool:
        """Record the GPUs that a scan found open, and tell whether that is a change: two scans in a row must agree."""
        confirmed, self.last_open = found == self.last_open, found
        news = confirmed and found != self.open
        if news:
            self.open = found
        return news

    def see(self, view: PodView, foreign: Collection[str] = ()) -> None:
        """Take over the API server's view. Our own record is believed only at first, and if newer than our write.

        Records of GPUs that the node never had, ``foreign``, are never believed.
        """
        if self.view is None and self.attached is None:
            self.attached, self.recorded = without(view.attached, foreign), view.attached
        elif not self.version or _newer(view.version, self.version):
            self.recorded = view.attached
        self.view, self.reported = view, True


def wanted(pod: ManagedPod) -> Allocated | None:
    """Return what the pod should have: the decision; nothing once it is finished or gone; as it is if unreadable."""
    view = pod.view
    if view is None or view.finished:
        return None
    if view.problem:
        known = pod.attached or _NOTHING
        granted = tuple(GpuShare(uuid, milli) for uuid, milli in sorted(pod.granted.items()))
        shares = granted if pod.settled else known.shares
        return Allocated(known.observed_generation, shares, revision=known.revision)
    return view.allocated


def proves(pod: ManagedPod, moving: bool, now: float) -> bool:
    """Tell whether a scan just now proves anything, although the pod may have been ``moving``; counts such scans.

    A descriptor that is passed around at the right moment escapes one scan, not several over some seconds.
    """
    if not moving:
        pod.unfrozen_scans = 0
        return True
    if not pod.unfrozen_scans:
        pod.unfrozen_since = now
    pod.unfrozen_scans += 1
    if pod.unfrozen_scans < MOVING_ROUNDS or now - pod.unfrozen_since < MOVING:
        return False
    pod.unfrozen_scans = 0
    return True


def to_look_for(pod: ManagedPod, allowed: Collection[str], inventory: Collection[str]) -> frozenset[str]:
    """Return the uuids to scan for: everything that the pod may have had and has no more."""
    known = pod.attached or _NOTHING
    had = {share.uuid for share in known.shares} | {item.uuid for item in known.draining} | pod.granted.keys()
    return frozenset(had if pod.settled else had | set(inventory)) - frozenset(allowed)


def advance(
    pod: ManagedPod,
    shares: tuple[GpuShare, ...],
    scan: HolderScan,
    rights: Rights,
    *,
    claimed: Collection[str] = (),
    unhealthy: frozenset[str] = frozenset(),
) -> Attached | None:
    """Return what is attached and draining after a scan found ``scan``, with rules in force that allow ``shares``.

    ``claimed``: uuids that are other pods'. None: there is nothing to say about this pod.
    """
    allocated = wanted(pod)
    found = found_holders(pod, scan, rights)
    allowed = frozenset(share.uuid for share in shares)
    known = pod.attached if pod.settled else _with_unrecorded(pod, found, allowed | set(claimed))
    if allocated is None and known is None and not pod.lacks:
        return None
    held = {s.uuid for s in known.shares} | {d.uuid for d in known.draining} if known else set()
    held |= pod.granted.keys()
    after = plan(
        replace(allocated, shares=shares) if allocated else None,
        known,
        Observation(allowed | (held - scan.scanned), found),
        unhealthy,
    ).attached
    if allocated and len(shares) < len(allocated.shares):  # not all of it is done
        after = replace(after, observed_generation=known.observed_generation if known else 0)
    after = replace(after, open=_reported_open(pod, shares), lacks=tuple(sorted(pod.lacks)))
    return after if known or after.shares or after.draining or after.revision or after.lacks else None


def lacking(devices: Collection[str] | None, gpus: Iterable[Gpu]) -> frozenset[str]:
    """Return the uuids of ``gpus`` that a container with these devices can never use; ``devices`` None: not known."""
    if devices is None:
        return frozenset()
    return frozenset(gpu.uuid for gpu in gpus if gpu.path not in devices)


def _reported_open(pod: ManagedPod, shares: Iterable[GpuShare]) -> tuple[str, ...]:
    """Return which of ``shares`` are open: as observed, else as an earlier process recorded."""
    known = pod.open if pod.open is not None else (pod.attached or _NOTHING).open
    return tuple(sorted({share.uuid for share in shares} & set(known)))


def _with_unrecorded(
    pod: ManagedPod, found: Mapping[str, tuple[Holder, ...]], rightful: Collection[str]
) -> Attached | None:
    """Return the record, with what the pod's own processes have open and no record names: a step was cut off."""
    known = pod.attached
    names = {share.uuid for share in known.shares} | {item.uuid for item in known.draining} if known else set()
    own = (uuid for uuid, some in sorted(found.items()) if any(not holder.foreign for holder in some))
    more = tuple(DrainingShare(uuid, MILLI_PER_GPU) for uuid in own if uuid not in names and uuid not in rightful)
    if not more:
        return known
    return replace(known or _NOTHING, draining=((known or _NOTHING).draining + more))


def found_holders(pod: ManagedPod, scan: HolderScan, rights: Rights) -> dict[str, tuple[Holder, ...]]:
    """Return, by uuid, the processes that keep the pod from releasing it."""
    hidden = holders((one for one in scan.hidden if one.start >= pod.began), "", pod.releasing, Rights())
    found = {}
    for uuid in scan.scanned & scan.holders.keys():
        suspects = scan.holders[uuid]
        guilty = (*holders(suspects, uuid, pod.releasing, rights), *hidden)
        found[uuid] = tuple(
            Holder(0 if foreign else inner_pid(suspect.pid), suspect.command, foreign) for suspect, foreign in guilty
        )
    return found


def worth_writing(pod: ManagedPod, now: float) -> bool:
    """Tell whether to write to the API server. A change of holders' names alone waits."""
    attached, recorded = pod.attached, pod.recorded
    if attached is None or attached == recorded:
        return False
    if recorded is None or _plain(attached) != _plain(recorded):
        return True
    return now - pod.written >= NEWS


def _plain(attached: Attached) -> Attached:
    return replace(attached, draining=tuple(item._replace(holders=()) for item in attached.draining))


def _newer(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) > int(than)
