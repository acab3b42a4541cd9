"""The agent: from ``allocated`` to device rules to ``attached``, for all pods of this node that have a slot.

Each pod has a task of its own, which goes from what is decided to what is so, again and again, whatever happened
before. Nothing is remembered that is not on the control group, in the annotations, or to be seen in ``/proc``. While
the API server or the scheduler is away everything stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, ObjectChange, Reflector
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu_node.agent.rules import pod_view
from jupyter_gpu_node.holders.rules.rights import Rights
from jupyter_gpu_node.holders.scanner import Sight
from jupyter_gpu_node.kubelet.offer import Topic
from jupyter_gpu_node.kubelet.pod_socket import PodSockets
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.processes.proc import Process, alive, describe
from jupyter_gpu_node.processes.process_ends import Endings

from .pod import FIRST_PAUSE, LAST_PAUSE, Member
from .steps import Steps, Tools

POINTS = (
    "agent:closed",  # a new pod is closed, the kubelet does not know
    "agent:seen",  # the decision is read, nothing is done
    "agent:pinned",  # the next rules are pinned, the old ones are in force
    "agent:replaced",  # the next rules are in force, both are pinned
    "agent:rules",  # the next rules are in force, `attached` tells the old
    "agent:frozen",  # the pod's processes stand still
    "agent:looked",  # the look is done, its result is not written
    "agent:written",  # `attached` is written, not yet noted here
)
"""Places where a test can kill this process (`faults`)."""

FIRST_RETRY, LAST_RETRY = 0.2, 10.0
"""Seconds until something that failed is tried again."""
SWEEP = 30.0
"""Seconds between two looks for programs that no pod has any more."""
_log = logging.getLogger(__name__)


class CannotGuard(Exception):
    """A container may not start, because its pod cannot be kept from GPUs; the text is for its user."""


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
            paths.pods(),
            fields=f"spec.nodeName={node}",
            on_change=self._hear,
            on_trouble=tools.news.trouble,
            newest=True,
        )
        self._members: dict[str, Member] = {}
        self._steps = Steps(tools, self._members, self.rights)
        self._tasks: asyncio.TaskGroup | None = None
        self._strangers: frozenset[str] = frozenset()
        self.ready = asyncio.Event()
        """Set as soon as pods can be guarded."""

    @property
    def pods(self) -> Mapping[str, Mapping[str, Any]]:
        """All pods of this node by uid, as the API server told them last."""
        return self._reflector.objects

    @property
    def synced(self) -> asyncio.Event:
        """Set once `pods` are known."""
        return self._reflector.synced

    @property
    def members(self) -> Mapping[str, Member]:
        """The pods under our care by uid."""
        return self._members

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
        managed = {uid: member.rights for uid, member in self._members.items()}
        trusted = {uid for uid, pod in self.pods.items() if self._trusts(pod)}
        return Rights(managed, trusted - managed.keys(), self._trusted_names)

    async def run(self) -> None:
        """Run until cancelled. Raises what must end the process."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for uid in await self._steps.do(self._tools.pins.uids):
                    self._add(uid)
                self._tools.inventory.changed = self.look_again
                self.ready.set()
                tasks.create_task(self._reflector.run())
                await self._reflector.synced.wait()
                self.look_again()
                while True:
                    await asyncio.sleep(SWEEP)
                    await self.sweep()
        finally:
            self._steps.close()

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Guard the pod: it is closed, or under the rules that it had, on return; raises `CannotGuard`."""
        await self.ready.wait()
        member = await self._hold(pod.uid)
        try:
            try:
                member.asked = True
                await self._steps.enclose(member)
                await self._steps.joined(member)
            finally:
                member.lock.release()
            if member.guard is None:
                raise CannotGuard(f"The control group of pod {pod} was not found, so its GPUs cannot be guarded.")
            faults.point("agent:closed")
            await self._sockets.serve(slot, pod.uid)
            await self._tools.sharing.serve(slot, pod.uid)
        except (OSError, ValueError) as error:
            raise CannotGuard(
                f"The GPUs of pod {pod} cannot be guarded: {error}. So its container {container} is not started."
            ) from None
        finally:
            member.wake.set()

    async def sweep(self) -> None:
        """Take into care what only a pin tells of: the removal of a pod's last traces failed. Seen twice, it is so."""
        found = await self._steps.do(self._tools.pins.uids) - self._members.keys()
        for uid in sorted(found & self._strangers):
            _log.warning("A program of pod %s is left over, and is looked after.", uid)
            self._add(uid)
        self._strangers = found

    def look_again(self) -> None:
        """Wake all pods, as something changed that any of them may wait for."""
        for member in self._members.values():
            member.wake.set()

    def unguarded(self, pod: PodRef, container: str) -> None:
        """Tell, once, that the kubelet started a container without asking us."""
        member = self._members.get(pod.uid)
        if member is None or member.told:
            return
        member.told = True
        self._tools.metrics.unguarded.inc()
        self._tools.publisher.about_pod(
            pod,
            Topic.GUARD.wrong,
            f"Container {container} was started without the node plugin. It can open no GPU that the pod was not "
            "given, but it may miss the devices of those that it was. Delete the pod to have it made again.",
        )

    # -- pods come and go ----------------------------------------------------------------------------------------------

    def _hear(self, change: ObjectChange) -> None:
        uid = objects.uid(change.object)
        member = self._members.get(uid)
        if change.kind == "removed":
            if member:
                member.view = None
                member.wake.set()
                self._tools.news.removed(uid)
            return
        view = pod_view.read(change.object)
        if member is None:
            if not view.slots or (view.finished and not pod_view.holds(view.attached)):
                return
            member = self._add(uid)
        before = member.view
        member.see(view, self._tools.inventory.foreign(pod_view.uuids(view.attached)))
        changed = before is None or _matters(before) != _matters(view) or view.attached != member.attached
        if changed or member.guard is None:  # its group may be there by now
            member.wake.set()
        self._tools.news.tell(change.object)  # after it: its step comes first

    def _add(self, uid: str) -> Member:
        member = self._members[uid] = Member(uid)
        assert self._tasks is not None
        self._tasks.create_task(self._follow(member), name=f"pod {uid}")
        return member

    async def _hold(self, uid: str) -> Member:
        """Return the member, under its lock; not one that was forgotten while we waited for it."""
        while True:
            member = self._members.get(uid) or self._add(uid)
            await member.lock.acquire()
            if self._members.get(uid) is member:
                return member
            member.lock.release()

    async def _follow(self, member: Member) -> None:
        """Follow one pod in its task: a step whenever something happened, or when it is time to look again."""
        endings: Endings[Process] = Endings(member.wake.set, lambda process: alive(process.pid, process.start))
        while member.uid in self._members:
            member.wake.clear()
            try:
                pause = await self._step(member, endings)
                member.failures = 0
            except (OSError, ValueError, KubeError) as error:
                pause = min(FIRST_RETRY * 2 ** min(member.failures, 8), LAST_RETRY)
                if not member.failures:
                    _log.warning("Pod %s: %s It is tried again.", member.uid, error)
                member.failures += 1
                self._tools.metrics.failures.inc()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await member.wake.wait()
        endings.set(())

    async def _step(self, member: Member, endings: Endings[Process]) -> float | None:
        """Take a step; return the seconds until the next one; None: only when something happens."""
        async with member.lock:
            before = member.holding
            if await self._steps.enclose(member):
                assert member.view is not None
                self.unguarded(member.view.ref, min(member.view.slots, default="?"))
            if member.view is None and not self.synced.is_set():
                return None  # it keeps what it has until the API server has been heard
            drained = member.holding.drains
            sight = await self._steps.settle(member)
            gone = member.view is None
        if member.holding.drains != drained:
            member.pause = FIRST_PAUSE
        if member.holding != before:
            self.look_again()
        endings.set(_waited_for(member, sight))
        await self._steps.record(member)
        if gone and not await self._steps.left(member):
            await self._forget(member)
            return 0
        return _pause(member, gone)

    async def _forget(self, member: Member) -> None:
        async with member.lock:  # the kubelet may be asking about it right now
            if member.view is not None:
                return
            del self._members[member.uid]
            if not member.heard:
                self._tools.metrics.orphans.labels("program").inc()
            await self._steps.bury(member)
        await self._sockets.forget(member.uid)
        self._tools.news.forget(member.uid)
        self.look_again()


def _matters(view: pod_view.PodView) -> pod_view.PodView:
    """Return a view without the fields that no step reads: wishes, and echoes of our own writes, need no step."""
    return replace(view, version="", attached=None)


def _waited_for(member: Member, sight: Sight) -> frozenset[Process]:
    """Return the processes whose end is a reason to look again."""
    if not member.drains:
        return frozenset()
    pids = {suspect.pid for suspects in sight.holders.values() for suspect in suspects}
    return frozenset(process for pid in pids if (process := describe(pid)))


def _pause(member: Member, gone: bool) -> float | None:
    if not (member.drains or member.waits or member.moved or gone):
        member.pause = FIRST_PAUSE
        return None
    pause, member.pause = member.pause, min(member.pause * 1.5, LAST_PAUSE)
    return pause
