"""One step of one pod: guard it, bring its rules to what was decided, look at what was taken away, record it.

What takes away goes: rules, look, record. What gives goes: rules, record. One write a step, none if nothing changed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.rules import holdings
from jupyter_gpu_node.agent.sharing.sharing import Sharing
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.guarded_pod import GuardedPod, enclose
from jupyter_gpu_node.devices.hierarchy_check import Joining
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import Places
from jupyter_gpu_node.holders import killing
from jupyter_gpu_node.holders.rules.rights import Rights
from jupyter_gpu_node.holders.scanner import Eyes, Sight
from jupyter_gpu_node.holders.searches import Searches
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.scan_budget import EACH, Budget, missing_since

from .evidence import Held, search_over
from .metrics import Metrics
from .pod import Member, advance, believed, lacking, suspicious, wanted, worth_writing
from .pod_events import PodNews
from .publisher import Publisher
from .self_test import Guarding

T = TypeVar("T")


def _now() -> int:
    """Return the time in clock ticks after boot, as ``/proc`` has the start of a process."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of the steps."""

    inventory: Inventory
    pins: Pins
    places: Places
    eyes: Eyes
    publisher: Publisher
    metrics: Metrics
    guarding: Guarding
    sharing: Sharing
    news: PodNews
    joining: Joining
    created_with: Callable[[str], frozenset[str] | None]
    """Function from a pod's uid to the paths of GPUs its containers were created with; None: not known."""
    searches: Searches


class Steps:
    """The steps of pods. ``members`` are all pods under our care; ``rights`` returns which GPUs they may have open."""

    def __init__(self, tools: Tools, members: Mapping[str, Member], rights: Callable[[], Rights]) -> None:
        self._tools = tools
        self._members = members
        self._rights = rights
        self._hands = ThreadPoolExecutor(1, thread_name_prefix="rules")

    async def enclose(self, member: Member) -> bool:
        """Guard the pod if it has a group; return whether it ran unguarded until now. Under its lock."""
        if member.guard and not (member.guard.in_force() and await self._stays(member)):
            member.guard.close()
            member.guard, member.granted = None, {}
        if member.guard:
            return False
        try:
            made = await self.do(self._enclose, member.uid)
        except OSError as error:
            member.loose = True
            self._tools.guarding.doubt(str(error))
            raise
        member.loose = False
        if made is None:
            member.settled = True  # nothing runs
            if not member.began and not await self.do(self._tools.pins.may_have_had, member.uid):
                member.began = _now()  # nor did since the machine started: what runs already has nothing of it
            return False
        member.guard, new, member.began, clean = made
        member.settled = new and clean
        self.share_groups()
        return new and not member.asked and bool(member.view and member.view.runs)

    async def joined(self, member: Member) -> None:
        """Check that the pod's rules hold for its processes, and will for the next one; else raise `OSError`."""
        try:
            await self.do(self._tools.joining.check_pod, member.uid)
            newest = await self.do(self._tools.places.newest, member.uid)
            if member.guard and newest not in (None, member.guard.group):
                raise OSError(
                    errno.ENOTUNIQ,
                    f"Pod {member.uid} runs in {member.guard.group}, and its next container would in {newest}, "
                    "as the kubelet's cgroup driver was changed: delete it",
                )
        except OSError as error:
            self._tools.guarding.doubt(str(error))
            raise

    async def _stays(self, member: Member) -> bool:
        """Tell whether the pod's group still is the guarded one: an empty one may be what its kubelet left behind.

        Some system calls while it is not empty: less than to have a thread do it.
        """
        guard = member.guard
        if guard is None or cgroup.populated(guard.group):
            return True
        found = await self.do(self._tools.places.find, member.uid)
        return found is None or found == guard.group

    def _enclose(self, uid: str) -> tuple[GuardedPod, bool, int, bool] | None:
        """Guard a pod; return also the start of its first process, and whether none of its processes has a GPU open."""
        inventory = self._tools.inventory
        gpus = tuple(inventory.seen.values())
        made = enclose(self._tools.pins, self._tools.places, uid, inventory.devices, gpus)
        if made is None:
            return None
        guard, new = made
        try:
            self._tools.joining.check_pod(uid)
        except OSError:
            guard.close()
            raise
        pids = guard.processes()
        starts = (start for pid in pids if (start := proc.process_start_time(pid)) is not None)
        budget = Budget(EACH)
        seen = proc.scan(proc.targets(gpus), pids, pod=pids, budgets=lambda _: budget) if new else None
        looked = seen is not None and bool(inventory.seen)  # of a driver that is silent nothing was looked for
        clean = seen is not None and looked and not any(seen.holders.values()) and not seen.uninspectable
        clean = clean and not budget.over
        return guard, new, min(starts, default=_now()), clean

    def share_groups(self) -> None:
        """Let looks know where the pods are."""
        self._tools.eyes.groups = {uid: one.guard.group for uid, one in self._members.items() if one.guard}

    async def settle(self, member: Member) -> Sight:
        """Put rules in force, look if something was taken away, and update the actual state. Under its lock."""
        faults.point("agent:seen")
        runs = member.view is not None and not member.view.finished
        devices = self._tools.created_with(member.uid) if runs else None
        member.lacks = lacking(devices, self._tools.inventory.gpus)
        shares = await self._apply(member)
        sight = await self._look(member, shares)
        await self._end_taken(member, sight)
        others = [one.holding for one in self._members.values() if one is not member]
        claimed = {uuid for other in others for uuid in other.has}
        unhealthy = self._tools.inventory.unhealthy
        member.attached = advance(member, shares, sight, self._rights(), claimed=claimed, unhealthy=unhealthy)
        member.granted = {share.uuid: share.milli for share in shares}
        # where nothing is known nothing was looked for, and of what moved, or is too much, nothing is proven
        unseen = sight.moving or member.uid in sight.over
        member.settled = member.settled or (bool(self._tools.inventory.seen) and not unseen)
        self._tools.sharing.changed()  # what is proven closed has no share any more
        return sight

    async def _apply(self, member: Member) -> tuple[GpuShare, ...]:
        """Apply the device rules, and return the shares that may be open now, and are."""
        if member.guard is None:
            return ()
        inventory = self._tools.inventory
        allocated = wanted(member)
        taken = self._tools.sharing.taken.of(member.uid)
        never = member.lacks | taken.keys()
        decided = tuple(share for share in allocated.shares if share.uuid not in never) if allocated else ()
        others = [one.holding for one in self._members.values() if one is not member]
        shares = holdings.permitted(decided, member.holding, others, inventory.seen, inventory.withheld)
        member.waits = len(shares) < len(decided)
        # Claimed before it is so: another pod's step may come in between.
        member.granted = {**member.granted, **{share.uuid: share.milli for share in shares}}
        allowed = [share.uuid for share in shares]
        if opened := set(allowed) - member.guard.allowed:
            whole = {one.uuid for one in shares if one.exclusive and not any(other.claim(one.uuid) for other in others)}
            self._rule(member, [uuid for uuid in allowed if uuid not in opened - whole])
            try:  # a pod that had more of it has less before it is opened for this pod, and its socket is there
                await self._tools.sharing.update(member.uid)
            except OSError:
                self._rule(member, [uuid for uuid in allowed if uuid not in opened])
                raise
        self._rule(member, allowed)
        return shares

    def _rule(self, member: Member, allowed: Collection[str]) -> None:
        """Apply rules by some system calls without I/O: on a busy machine a thread would wait longer than they take."""
        inventory, begun = self._tools.inventory, time.perf_counter()
        assert member.guard is not None
        if member.guard.apply(allowed, inventory.seen, inventory.devices):
            self._tools.metrics.apply.observe(time.perf_counter() - begun)
            faults.point("agent:rules")

    async def _end_taken(self, member: Member, sight: Sight) -> None:
        """End all processes of the pod that have a GPU open of which its share was taken away, whatever they are."""
        taken = self._tools.sharing.taken.of(member.uid)
        holders = {one for uuid in taken for one in sight.holders.get(uuid, ())}
        found = [one for one in holders if one.pod == member.uid]
        await asyncio.gather(*(killing.end(suspect) for suspect in found))

    async def _look(self, member: Member, shares: tuple[GpuShare, ...]) -> Sight:
        seen: Mapping[str, Gpu] = self._tools.inventory.seen
        missing = suspicious(member, [share.uuid for share in shares], seen)
        now = time.monotonic()
        member.missing = missing_since(member.missing, missing, now)
        if not missing:
            return Sight()
        pods = {member.uid: member.guard.group} if member.guard else {}
        wanted = {uuid: seen[uuid] for uuid in missing if uuid in seen}  # of one that is not known nothing is proven
        if member.held and member.held.stands(member, wanted, self._rights(), now):
            return member.held.sight
        sight = await self._tools.eyes.look(wanted, pods)
        faults.point("agent:looked")
        sight, proven = search_over(self._tools.searches, member, sight, wanted, seen, self._rights(), time.monotonic())
        member.held = Held.of(member, sight, wanted, self._rights(), now)
        moving = sight.moving & {member.uid}
        if not believed(member, bool(moving), time.monotonic()):
            return Sight(sight.holders, sight.hidden, moving=moving, over=sight.over)
        if moving:
            self._tools.metrics.moving.inc()
        return Sight(sight.holders, sight.hidden, proven, over=sight.over)

    async def record(self, member: Member) -> None:
        """Write the state once, if there is news."""
        now = time.monotonic()
        if member.view is None or not worth_writing(member, now):
            return
        attached = member.attached
        assert attached is not None
        after = await self._tools.publisher.attached(member.view.ref, attached)
        faults.point("agent:written")
        if after is not None:
            self._tools.news.tell(after)
            member.recorded, member.version, member.written = attached, objects.resource_version(after), now
            self._tools.metrics.attached(member.view.ref, attached)

    async def left(self, member: Member) -> bool:
        """Tell whether anything of a pod that is gone is left on this node."""
        if member.attached and any(item.uuid in self._tools.inventory.seen for item in member.attached.draining):
            return True
        return member.guard is not None and await self.do(cgroup.populated, member.guard.group)

    async def bury(self, member: Member) -> None:
        """Remove the pins of a pod of which nothing else is left."""
        if member.guard:
            member.guard.close()
        await self.do(self._tools.pins.discard, member.uid)
        self._tools.metrics.forget(member.uid)
        self._tools.sharing.forget(member.uid)
        self._tools.searches.forget(member.uid)
        self.share_groups()

    async def do(self, work: Callable[..., T], *arguments: object) -> T:
        """Do work outside of the event loop, one call after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._hands, work, *arguments)

    def close(self) -> None:
        """Take no more steps."""
        self._hands.shutdown(wait=False, cancel_futures=True)
