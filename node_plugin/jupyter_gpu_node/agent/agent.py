"""The agent: from ``allocated`` to device rules to ``attached``, for all pods of this node that have a slot.

Each pod has its own task, which brings the pod to what was decided, again and again, whatever happened before. All
state is on the control group, in the annotations, or visible in ``/proc``. While the API server or the scheduler is
away, everything stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.service import Peer
from jupyter_gpu_node.agent.rules import peers, pod_view
from jupyter_gpu_node.holders.rules.rights import Rights
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.kubelet.offer import Topic
from jupyter_gpu_node.kubelet.pod_socket import PodSockets
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.processes.proc import ProcessInfo, alive, describe
from jupyter_gpu_node.processes.process_ends import ProcessEnds

from .pod import ManagedPod
from .release import FIRST_PAUSE
from .steps import AgentSteps
from .tools import Tools

POINTS = (
    "agent:closed",  # a new pod is closed, the kubelet does not know yet
    "agent:said",  # the pod said its key, nothing is written
    "agent:seen",  # the decision is read, nothing is done
    "agent:pinned",  # the next rules are pinned, the old ones are in force
    "agent:replaced",  # the next rules are in force, both are pinned
    "agent:rules",  # the next rules are in force, `attached` has the old state
    "agent:frozen",  # the pod's processes are frozen
    "agent:scanned",  # the scan is done, its result is not written
    "agent:written",  # `attached` is written, not yet noted here
)
"""Points at which a test can kill this process (`faults`)."""

FIRST_RETRY, LAST_RETRY = 0.2, 10.0
"""Seconds until a failed step is tried again."""
SWEEP = 30.0
"""Seconds between two searches for programs that no pod has any more."""
_log = logging.getLogger(__name__)


class CannotGuard(Exception):
    """The error if a pod cannot be kept from GPUs, so that its container may not start; the text is for its user."""


class Agent:
    """The agent that keeps the pods of one node within what they were given.

    ``trusted_names``: programs outside every pod that may have GPUs open; ``trusts``: which pods may.
    """

    def __init__(
        self,
        node: str,
        kube: Kube,
        tools: Tools,
        sockets: PodSockets,
        *,
        trusted_names: Collection[str] = (),
        trusts: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    ) -> None:
        self._tools = tools
        self._sockets = sockets
        self._trusted_names = frozenset(trusted_names)
        self._trusts = trusts
        # the newest state: an older one could give back what was taken away and given to another pod meanwhile
        self._reflector = Reflector(
            kube,
            Selection(paths.pods(), fields=f"spec.nodeName={node}"),
            on_change=self._on_change,
            on_trouble=tools.reports.pod_events.trouble,
            newest=True,
        )
        self._managed: dict[str, ManagedPod] = {}
        self._steps = AgentSteps(tools, self._managed, self.rights)
        self._tasks: asyncio.TaskGroup | None = None
        self._strangers: frozenset[str] = frozenset()
        self.ready = asyncio.Event()
        """Set as soon as pods can be guarded."""

    @property
    def pods(self) -> Mapping[str, Mapping[str, Any]]:
        """All pods of this node by uid, as the API server reported them last."""
        return self._reflector.objects

    @property
    def synced(self) -> asyncio.Event:
        """Set once `pods` are known."""
        return self._reflector.synced

    @property
    def managed(self) -> Mapping[str, ManagedPod]:
        """The pods under our care by uid."""
        return self._managed

    @property
    def trouble(self) -> str:
        """Reason why the API server cannot be heard now; empty while it can."""
        return self._reflector.trouble

    def view(self, uid: str) -> pod_view.PodView | None:
        """Return a pod of this node, with a slot or without; None if there is none."""
        pod = self.pods.get(uid)
        return pod_view.read(pod) if pod else None

    def rights(self) -> Rights:
        """Return the present rights to have GPUs open."""
        managed = {uid: pod.rights for uid, pod in self._managed.items()}
        trusted = {uid for uid, pod in self.pods.items() if self._trusts(pod)}
        return Rights(managed, trusted - managed.keys(), self._trusted_names)

    async def run(self) -> None:
        """Run until cancelled. Raises what must end the process."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for uid in await self._steps.in_thread(self._tools.guarding.pins.uids):
                    self._add(uid)
                self._tools.inventory.changed = self.wake_all
                self.ready.set()
                tasks.create_task(self._reflector.run())
                await self._reflector.synced.wait()
                self.wake_all()
                while True:
                    await asyncio.sleep(SWEEP)
                    await self.sweep()
        finally:
            self._steps.close()

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Guard the pod: it is closed, or under the rules that it had, on return; raises `CannotGuard`."""
        await self.ready.wait()
        managed = await self._hold(pod.uid)
        try:
            try:
                managed.announced = True
                await self._steps.guard(managed)
                await self._steps.check_membership(managed)
            finally:
                managed.lock.release()
            if managed.guard is None:
                raise CannotGuard(f"The control group of pod {pod} was not found, so its GPUs cannot be guarded.")
            faults.point("agent:closed")
            await self._sockets.serve(slot, pod.uid)
            await self._tools.sharing.serve(slot, pod.uid)
        except (OSError, ValueError) as error:
            raise CannotGuard(
                f"The GPUs of pod {pod} cannot be guarded: {error}. So its container {container} is not started."
            ) from None
        finally:
            managed.wake.set()

    async def sweep(self) -> None:
        """Manage pods of which only a pin is left, as removing it failed; only if they are found twice."""
        found = await self._steps.in_thread(self._tools.guarding.pins.uids) - self._managed.keys()
        for uid in sorted(found & self._strangers):
            _log.warning("A program of pod %s is left over, and is managed from now on.", uid)
            self._add(uid)
        self._strangers = found

    def put(self, uid: str, peer: Peer) -> None:
        """Take over the keys that a pod says are its own; they are written with its next step. Raises `Refused`."""
        pod = self._managed.get(uid)
        if pod is None or pod.view is None:
            raise peers.Refused("This pod is not known here yet: say it again in a moment.")
        said = peers.say(pod.said, peer, time.monotonic(), worker=pod.view.worker)
        if said != pod.said:
            pod.said = said
            faults.point("agent:said")
            pod.wake.set()

    def wake_all(self) -> None:
        """Wake all pods, as something changed that any of them may wait for."""
        for pod in self._managed.values():
            pod.wake.set()

    def unguarded(self, pod: PodRef, container: str) -> None:
        """Tell, once, that the kubelet started a container without asking us."""
        managed = self._managed.get(pod.uid)
        if managed is None or managed.warned:
            return
        managed.warned = True
        self._tools.reports.metrics.unguarded.inc()
        self._tools.reports.publisher.about_pod(
            pod,
            Topic.GUARD.wrong,
            f"Container {container} was started without the node plugin. It can open no GPU that the pod was not "
            "given, but it may miss the devices of those that it was. Delete the pod to have it made again.",
        )

    # -- pods come and go ----------------------------------------------------------------------------------------------

    def _on_change(self, change: ObjectChange) -> None:
        uid = objects.uid(change.object)
        pod = self._managed.get(uid)
        if change.kind == "removed":
            if pod:
                pod.view = None
                pod.wake.set()
                self._tools.reports.pod_events.removed(uid)
            return
        view = pod_view.read(change.object)
        if pod is None:
            if not view.slots or (view.finished and not pod_view.holds(view.attached)):
                return
            pod = self._add(uid)
        before = pod.view
        pod.take_over(view, self._tools.inventory.foreign(pod_view.uuids(view.attached)))
        changed = before is None or _relevant_part(before) != _relevant_part(view) or view.attached != pod.attached
        if changed or pod.guard is None:  # its group may be there by now
            pod.wake.set()
        self._tools.reports.pod_events.update(change.object)  # after it: its step comes first

    def _add(self, uid: str) -> ManagedPod:
        pod = self._managed[uid] = ManagedPod(uid)
        assert self._tasks is not None
        self._tasks.create_task(self._follow(pod), name=f"pod {uid}")
        return pod

    async def _hold(self, uid: str) -> ManagedPod:
        """Return the pod, under its lock; not one that was forgotten while we waited for it."""
        while True:
            pod = self._managed.get(uid) or self._add(uid)
            await pod.lock.acquire()
            if self._managed.get(uid) is pod:
                return pod
            pod.lock.release()

    async def _follow(self, pod: ManagedPod) -> None:
        """Run one pod's task: a step whenever something happened, or when it is time for another scan."""
        endings: ProcessEnds[ProcessInfo] = ProcessEnds(pod.wake.set, lambda process: alive(process.pid, process.start))
        while pod.uid in self._managed:
            pod.wake.clear()
            try:
                pause = await self._step(pod, endings)
                pod.failures = 0
            except (OSError, ValueError, KubeError) as error:
                pause = min(FIRST_RETRY * 2 ** min(pod.failures, 8), LAST_RETRY)
                if not pod.failures:
                    _log.warning("Pod %s: %s It is tried again.", pod.uid, error)
                pod.failures += 1
                self._tools.reports.metrics.failures.inc()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await pod.wake.wait()
        endings.set(())

    async def _step(self, pod: ManagedPod, endings: ProcessEnds[ProcessInfo]) -> float | None:
        """Take a step; return the seconds until the next one; None: only when something happens."""
        async with pod.lock:
            before = pod.holding
            if await self._steps.guard(pod):
                assert pod.view is not None
                self.unguarded(pod.view.ref, min(pod.view.slots, default="?"))
            if pod.view is None and not self.synced.is_set():
                return None  # it keeps what it has until the API server has been heard
            drained = pod.holding.drains
            scan = await self._steps.reconcile_pod(pod)
            gone = pod.view is None
        if pod.holding.drains != drained:
            pod.release.pause = FIRST_PAUSE
        if pod.holding != before:
            self.wake_all()
        endings.set(_waited_for(pod, scan))
        await self._steps.record(pod)
        if gone and not await self._steps.has_remains(pod):
            await self._forget(pod)
            return 0
        return _pause(pod, gone)

    async def _forget(self, pod: ManagedPod) -> None:
        async with pod.lock:  # the kubelet may be asking about it right now
            if pod.view is not None:
                return
            del self._managed[pod.uid]
            if not pod.reported:
                self._tools.reports.metrics.orphans.labels("program").inc()
            await self._steps.forget(pod)
        await self._sockets.forget(pod.uid)
        self._tools.reports.pod_events.forget(pod.uid)
        self.wake_all()


def _relevant_part(view: pod_view.PodView) -> pod_view.PodView:
    """Return a view without the fields that no step reads: requests, and echoes of our own writes, need no step."""
    return replace(view, version="", attached=None)


def _waited_for(pod: ManagedPod, scan: HolderScan) -> frozenset[ProcessInfo]:
    """Return the processes whose end is a reason for another scan."""
    if not pod.drains:
        return frozenset()
    pids = {suspect.pid for suspects in scan.holders.values() for suspect in suspects}
    return frozenset(process for pid in pids if (process := describe(pid)))


def _pause(pod: ManagedPod, gone: bool) -> float | None:
    if not (pod.drains or pod.waits or pod.release.unfrozen_scans or gone):
        pod.release.pause = FIRST_PAUSE
        return None
    return pod.release.next_pause()
