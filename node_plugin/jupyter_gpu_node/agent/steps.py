"""One step of one pod: guard it, bring its rules to what was decided, scan for what was taken away, record it.

A GPU is taken away in the order rules, scan, record, and given in the order rules, record. A step writes once, or not
at all if nothing changed.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_node.agent.rules import holdings
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.guarded_pod import GuardedPod, guard_pod
from jupyter_gpu_node.holders import killing
from jupyter_gpu_node.holders.rules.rights import Rights
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.processes import device_scan, proc
from jupyter_gpu_node.processes.rules.scan_budget import EACH, ScanBudget, denied_since
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse

from .budget_searches import include_searches
from .evidence import OpenEvidence
from .next_state import advance, lacking, to_prove_closed, wanted, worth_writing
from .pod import ManagedPod, ServerRecord
from .tools import Tools

T = TypeVar("T")


def _now() -> int:
    """Return the time in clock ticks after boot, as ``/proc`` has the start of a process."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


class AgentSteps:
    """The steps of pods. ``managed``: all pods that the agent manages.

    ``rights``: returns which GPUs they may have open.
    """

    def __init__(self, tools: Tools, managed: Mapping[str, ManagedPod], rights: Callable[[], Rights]) -> None:
        self._tools = tools
        self._managed = managed
        self._rights = rights
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rules")

    async def guard(self, pod: ManagedPod) -> bool:
        """Guard the pod if it has a group; return whether it ran unguarded until now. Under its lock."""
        if pod.guard and not (pod.guard.in_force() and await self._stays(pod)):
            pod.guard.close()
            pod.guard, pod.granted = None, {}
        if pod.guard:
            return False
        try:
            made = await self.in_thread(self._guard, pod.uid)
        except OSError as error:
            pod.guard_failed = True
            self._tools.guarding.self_test.test_now(str(error))
            raise
        pod.guard_failed = False
        if made is None:
            pod.holdings_known = True  # nothing runs
            if not pod.began and not await self.in_thread(self._tools.guarding.pins.may_have_had, pod.uid):
                # nothing of it ran since the machine started: processes that run already have no GPU from it
                pod.began = _now()
            return False
        pod.guard, new, pod.began, clean = made
        pod.holdings_known = new and clean
        self.update_groups()
        return new and not pod.announced and bool(pod.view and pod.view.runs)

    async def check_membership(self, pod: ManagedPod) -> None:
        """Check that the pod's rules hold for its processes, and will for the next one; else raise `OSError`."""
        try:
            await self.in_thread(self._tools.guarding.hierarchy.check_pod, pod.uid)
            newest = await self.in_thread(self._tools.guarding.cgroups.newest, pod.uid)
            if pod.guard and newest not in (None, pod.guard.group):
                raise OSError(
                    errno.ENOTUNIQ,
                    f"Pod {pod.uid} runs in {pod.guard.group}, and its next container would run in {newest}, "
                    "as the kubelet's cgroup driver was changed: delete it",
                )
        except OSError as error:
            self._tools.guarding.self_test.test_now(str(error))
            raise

    async def _stays(self, pod: ManagedPod) -> bool:
        """Tell whether the pod's group still is the guarded one: an empty one may be what its kubelet left behind.

        It makes a few system calls while the group is not empty: that costs less than a thread.
        """
        guard = pod.guard
        if guard is None or cgroup.populated(guard.group):
            return True
        found = await self.in_thread(self._tools.guarding.cgroups.find, pod.uid)
        return found is None or found == guard.group

    def _guard(self, uid: str) -> tuple[GuardedPod, bool, int, bool] | None:
        """Guard a pod; return also the start of its first process, and whether none of its processes has a GPU open."""
        inventory = self._tools.inventory
        gpus = tuple(inventory.seen.values())
        made = guard_pod(self._tools.guarding.pins, self._tools.guarding.cgroups, uid, inventory.devices, gpus)
        if made is None:
            return None
        guard, new = made
        try:
            self._tools.guarding.hierarchy.check_pod(uid)
        except OSError:
            guard.close()
            raise
        pids = guard.processes()
        starts = (start for pid in pids if (start := proc.process_start_time(pid)) is not None)
        budget = ScanBudget(EACH)
        seen = device_scan.scan(device_scan.targets(gpus), pids, pod=pids, budgets=lambda _: budget) if new else None
        searched = seen is not None and bool(inventory.seen)  # with a silent driver nothing was scanned for
        clean = seen is not None and searched and not any(seen.holders.values()) and not seen.uninspectable
        clean = clean and not budget.over
        return guard, new, min(starts, default=_now()), clean

    def update_groups(self) -> None:
        """Tell the scanner the groups of the pods."""
        self._tools.scans.scanner.groups = {uid: one.guard.group for uid, one in self._managed.items() if one.guard}

    async def reconcile_pod(self, pod: ManagedPod) -> HolderScan:
        """Put rules in force, scan if something was taken away, and update the actual state. Under its lock."""
        faults.point("agent:seen")
        runs = pod.view is not None and not pod.view.finished
        devices = self._tools.created_with(pod.uid) if runs else None
        pod.lacks = lacking(devices, self._tools.inventory.gpus)
        shares = await self._apply(pod)
        scan = await self._scan(pod, shares)
        await self._end_taken(pod, scan)
        claimed = {uuid for one in self._managed.values() if one is not pod for uuid in one.claimed_uuids}
        unhealthy = self._tools.inventory.unhealthy
        pod.attached = advance(pod, shares, scan, self._rights(), claimed=claimed, unhealthy=unhealthy)
        pod.granted = {share.uuid: share for share in shares}
        # without known GPUs nothing was scanned for; of a pod that moved, or is over its budget, nothing is proven
        unseen = scan.moving or pod.uid in scan.over
        pod.holdings_known = pod.holdings_known or (bool(self._tools.inventory.seen) and not unseen)
        self._tools.sharing.changed()  # what is proven closed has no share any more
        return scan

    async def _apply(self, pod: ManagedPod) -> tuple[GpuShare, ...]:
        """Apply the device rules, and return the shares that may be open now, and are."""
        if pod.guard is None:
            return ()
        inventory = self._tools.inventory
        decided, divided = await self._decided(pod)
        others = [one.holding for one in self._managed.values() if one is not pod]
        permitted = functools.partial(holdings.permitted, decided, pod.holding, others, inventory.seen)
        alone = frozenset[str]() if self._tools.sharing.limits(pod.uid) else frozenset(divided)
        shares = permitted(inventory.withheld | alone, divided)
        pod.waits = shares != decided
        pod.waits_for_memory = pod.waits and shares != permitted(inventory.withheld)
        # Claimed before it is so: another pod's step may come in between.
        pod.granted = pod.granted | {share.uuid: share for share in shares}
        allowed = [share.uuid for share in shares]
        if opened := set(allowed) - pod.guard.allowed:
            whole = {one.uuid for one in shares if one.exclusive and not any(other.names(one.uuid) for other in others)}
            self._rule(pod, [uuid for uuid in allowed if uuid not in opened - whole])
            try:  # a pod that had more of it has less before it is opened for this pod, and its socket is there
                await self._tools.sharing.update(pod.uid)
            except OSError:
                self._rule(pod, [uuid for uuid in allowed if uuid not in opened])
                raise
        self._rule(pod, allowed)
        return shares

    async def _decided(self, pod: ManagedPod) -> tuple[tuple[GpuShare, ...], Mapping[str, MemoryUse]]:
        """Return the shares that were decided, and what is used of divided GPUs on which one of them is new or grows.

        The other shares there have their limits by then, so they take no more of what is found free.
        """
        while True:
            allocated = wanted(pod)
            never = pod.lacks | self._tools.sharing.taken.of(pod.uid).keys()
            decided = tuple(share for share in allocated.shares if share.uuid not in never) if allocated else ()
            holding = pod.holding
            more = {share.uuid for share in decided if not share.is_within(holding.opened(share.uuid))}
            divided = await self._tools.sharing.divided(more)
            if wanted(pod) == allocated:  # else the limits may not be those of what was decided before
                return decided, divided

    def _rule(self, pod: ManagedPod, allowed: Collection[str]) -> None:
        """Apply rules by some system calls without I/O: on a busy machine a thread would wait longer than they take."""
        inventory, begun = self._tools.inventory, time.perf_counter()
        assert pod.guard is not None
        if pod.guard.apply(allowed, inventory.seen, inventory.devices):
            self._tools.reports.metrics.apply.observe(time.perf_counter() - begun)
            faults.point("agent:rules")

    async def _end_taken(self, pod: ManagedPod, scan: HolderScan) -> None:
        """End all processes of the pod that have a GPU open of which its share was taken away, whatever they are."""
        taken = self._tools.sharing.taken.of(pod.uid)
        holders = {one for uuid in taken for one in scan.holders.get(uuid, ())}
        found = [one for one in holders if one.pod == pod.uid]
        await asyncio.gather(*(killing.end(suspect) for suspect in found))

    async def _scan(self, pod: ManagedPod, shares: tuple[GpuShare, ...]) -> HolderScan:
        seen: Mapping[str, Gpu] = self._tools.inventory.seen
        unproven = to_prove_closed(pod, [share.uuid for share in shares], seen)
        now = time.monotonic()
        pod.release.denied_since = denied_since(pod.release.denied_since, unproven, now)
        if not unproven:
            return HolderScan()
        pods = {pod.uid: pod.guard.group} if pod.guard else {}
        wanted = {uuid: seen[uuid] for uuid in unproven if uuid in seen}  # nothing is proven of one that is not known
        if pod.release.evidence and pod.release.evidence.stands(pod.releasing, wanted, self._rights(), now):
            return pod.release.evidence.scan
        scan = await self._tools.scans.scanner.scan(wanted, pods)
        faults.point("agent:scanned")
        scan, proven = include_searches(
            self._tools.scans.searches, pod, scan, wanted, seen, self._rights(), time.monotonic()
        )
        pod.release.evidence = OpenEvidence.of(pod.releasing, scan, wanted, self._rights(), now)
        moving = scan.moving & {pod.uid}
        if not pod.release.count_scan(bool(moving), time.monotonic()):
            return HolderScan(scan.holders, scan.hidden, moving=moving, over=scan.over)
        if moving:
            self._tools.reports.metrics.moving.inc()
        return HolderScan(scan.holders, scan.hidden, proven, over=scan.over)

    async def record(self, pod: ManagedPod) -> None:
        """Write the state once, if it changed."""
        now = time.monotonic()
        view, attached = pod.view, pod.attached  # it may be gone before the API server has answered
        if view is None or not worth_writing(pod, now):
            return
        assert attached is not None
        after = await self._tools.reports.publisher.attached(view.ref, attached)
        faults.point("agent:written")
        if after is not None:
            self._tools.reports.pod_events.update(after)
            pod.record = ServerRecord(attached, objects.resource_version(after), now)
            self._tools.reports.metrics.attached(view.ref, attached)

    async def has_remains(self, pod: ManagedPod) -> bool:
        """Tell whether anything of a pod that is gone is left on this node."""
        if pod.attached and any(item.uuid in self._tools.inventory.seen for item in pod.attached.draining):
            return True
        return pod.guard is not None and await self.in_thread(cgroup.populated, pod.guard.group)

    async def forget(self, pod: ManagedPod) -> None:
        """Remove the pins of a pod of which nothing else is left."""
        if pod.guard:
            pod.guard.close()
        await self.in_thread(self._tools.guarding.pins.discard, pod.uid)
        self._tools.reports.metrics.forget(pod.uid)
        self._tools.sharing.forget(pod.uid)
        self._tools.scans.searches.forget(pod.uid)
        self.update_groups()

    async def in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Run work in a thread, one call after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def close(self) -> None:
        """Stop taking steps."""
        self._executor.shutdown(wait=False, cancel_futures=True)
