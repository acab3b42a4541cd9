"""One pod of this node as the agent knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.agent.rules.peers import Said
from jupyter_gpu_node.agent.rules.pod_view import PodView, without
from jupyter_gpu_node.agent.rules.use_class import UseScans
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.holders.rules.rights import ReleasingPod

from .release import Release


@dataclass(slots=True)
class ServerRecord:
    """The pod's state as the API server has it, as far as we know."""

    attached: Attached | None = None
    version: str = ""
    """Version of our last write."""
    written: float = 0
    """Time of that write, on the clock of `time.monotonic`."""

    def take_over(self, view: PodView) -> None:
        """Take over the API server's view, if it is newer than our last write."""
        if not self.version or _newer(view.version, self.version):
            self.attached = view.attached


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
    record: ServerRecord = field(default_factory=ServerRecord)
    granted: dict[str, GpuShare] = field(default_factory=dict)
    """Shares by uuid that the rules in force are for."""
    holdings_known: bool = False
    """Whether its holdings are known: once guarded, or after the first scan if this process did not guard it anew."""
    guard_failed: bool = False
    """Whether its group could not be closed: what it opens is unknown, so no other pod gets anything new."""
    waits: bool = False
    """Whether a grant waits for another pod."""
    waits_for_memory: bool = False
    """Whether it waits for memory that other pods use."""
    announced: bool = False
    """Whether the kubelet announced one of its containers."""
    reported: bool = False
    """Whether the API server ever reported it; else only an earlier process knew it."""
    warned: bool = False
    """Whether an Event said that it ran unguarded."""
    use: UseScans = field(default_factory=UseScans)
    said: Said | None = None
    """The keys that it said are its own, to this process; None: none yet."""
    lacks: frozenset[str] = frozenset()
    """UUIDs of GPUs whose devices its containers were created without."""
    began: int = 0
    """Start of its first process, in clock ticks after boot, or the earliest possible one; 0 where it is unknown."""
    release: Release = field(default_factory=Release)
    failures: int = 0
    """Steps in a row that failed."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def holding(self) -> Holding:
        """The pod's present holdings."""
        order = (self.view.created if self.view else "", self.uid)
        shares = {share.uuid: share for share in self.attached.shares} if self.attached else {}
        draining = self.attached.draining if self.attached else ()
        allowed = self.guard.allowed if self.guard else frozenset[str]()
        has = (shares | self.granted).values()
        return Holding(
            order,
            {share.uuid: share.milli for share in has},
            {item.uuid: item.milli for item in draining},
            self.holdings_known and not self.guard_failed,
            allowed,
            {share.uuid: share.memory for share in has if share.memory},
            {item.uuid: item.memory for item in draining if item.memory},
        )

    @property
    def claimed_uuids(self) -> Collection[str]:
        """Uuids that no process of another pod may have open: those that this pod's rules allow.

        A record that says more than they do is older than they are. It counts only where there are none yet.
        """
        return self.guard.allowed if self.guard and self.guard.known else self.holding.has.keys()

    @property
    def rights(self) -> frozenset[str] | None:
        """Uuids that its processes may have open; None while that is not known."""
        if not self.holdings_known or self.guard is None or not self.guard.known:
            return None
        holding = self.holding
        return frozenset(holding.has) | frozenset(holding.drains)

    @property
    def releasing(self) -> ReleasingPod:
        """The pod as one that gives GPUs back."""
        return ReleasingPod(self.uid, self.began)

    @property
    def drains(self) -> bool:
        """Whether a GPU that was taken away is not proven closed yet."""
        return bool(self.attached and self.attached.draining)

    def take_over(self, view: PodView, foreign: Collection[str] = ()) -> None:
        """Take over the API server's view. Its ``attached`` counts only at first, or if newer than our last write.

        Records of ``foreign`` GPUs, which the node never had, do not count.
        """
        if self.view is None and self.attached is None:
            self.attached, self.record.attached = without(view.attached, foreign), view.attached
        else:
            self.record.take_over(view)
        self.view, self.reported = view, True


def _newer(version: str, than: str) -> bool:
    return version.isdigit() and than.isdigit() and int(version) > int(than)
