"""The steps that make the recorded state of a pod actual: read, decide, apply, and record, under the store's lock."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import Allocated, Requested, Wish
from jupyter_gpu.model.annotations import record as next_request
from jupyter_gpu.model.gpu import NVIDIA, Gpu
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.gpus.registry import INTERVAL, Registry
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .guard import PodGuard
from .limits.machine_limits import MachineLimits
from .processes.identity import alive, identify, since_boot
from .records.other_pods import OtherPod
from .records.own_record import OwnRecord
from .records.record import MAX_REVOCATIONS, Record, without_use
from .records.store import Session, StateStore
from .scans.pod_scanner import PodScanner
from .scans.scan_result import ScanResult
from .schedule import RETRY, Schedule
from .sharing.pod_client import PodClient
from .use_looks import LEAST, UseLooks

if TYPE_CHECKING:
    from .decision import Decided

MAX_STEPS = 8
"""Most steps of one advance; each but the last has released something that was waited for."""

SOON = 0.05
"""Seconds after a moment of the calendar at which it is over by every clock."""


class Parts(NamedTuple):
    """The parts of one pod that its steps use."""

    store: StateStore
    own: OwnRecord
    registry: Registry
    guard: PodGuard
    scanner: PodScanner
    client: PodClient
    schedule: Schedule
    limits: MachineLimits
    uses: UseLooks


class PodSteps:
    """The steps of one pod. ``patience``: seconds after which its wish is overdue."""

    def __init__(self, parts: Parts, patience: float) -> None:
        self._store, self._own, self._registry, self._guard = parts.store, parts.own, parts.registry, parts.guard
        self._scanner, self._client, self._schedule = parts.scanner, parts.client, parts.schedule
        self._limits, self._uses = parts.limits, parts.uses
        self._patience = patience
        self._due: float | None = None  # since 1970: the limit is another one then
        self._remains: frozenset[ProcessId] = frozenset()  # of dead pods
        self._empty: frozenset[str] = frozenset()  # dead pods whose records we may not remove
        self._lacks_memory = False  # what was decided waits for memory that other pods use

    def advance(
        self, wish: Wish | None, *, thorough: bool = False, revocation: str = "", busy: frozenset[str] | None = None
    ) -> None:
        """Take step after step until nothing changes any more by itself.

        ``thorough``: check also whether dead pods have left something when this pod waits for nothing. ``revocation``:
        the key of the one that this carries out. ``busy``: GPUs that should stay, in place of those that are in use.
        """
        own, before = self._own, self._own.record
        self._limits.reload()
        self._limits.learn(own.others.pods)  # now, as it may take long, and not while everybody waits for the lock
        # Idle GPUs go first; where all or none of them go there is nothing to choose.
        if busy is None:
            choice = 0 < wish.milli < own.milli if wish is not None else self._is_taken_back()
            busy = self._scanner.scan(own.held, proof=False).busy if choice else frozenset()
            if choice:
                self._uses.look(LEAST)
        scan = ScanResult()
        try:
            for _ in range(MAX_STEPS):
                drained = own.draining
                with self._store.locked() as session:
                    self._step(session, wish, busy, scan, revocation)
                wish, revocation = None, ""
                if own.draining - scan.scanned:
                    scan = self._scanner.scan_draining()
                    faults.point("scan:done")
                    continue
                released = bool(drained - own.draining)
                if not (own.owed and released) and not ((self._waits or thorough) and self._reap()):
                    break
                thorough = False
                scan = ScanResult()  # a proof is good for one decision: the next may grant the same GPU again
        finally:
            self.follow()
            self._plan_ahead(before)
            if without_use(own.record) != without_use(before):
                faults.point("attach:recorded")
                own.notify_others()
        self._schedule.succeeded()

    def _step(
        self, session: Session, wish: Wish | None, busy: frozenset[str], scan: ScanResult, revocation: str
    ) -> None:
        """Read, record the wish, decide, apply, and record, all under the lock."""
        own = self._own
        own.join(session)
        self._scanner.strangers.podless = {}  # a scan is good for one decision
        requested = own.record.requested
        if wish is not None:
            requested = next_request(requested, wish)
        if not self._registry.known:
            own.save(session, requested=requested, gate=self._gate)
            return
        # The wish and its answer in one write: no other server sees one without the other.
        known = own.record.revocations
        done = (*known, revocation)[-MAX_REVOCATIONS:] if revocation else known
        decided = self._decide(requested, busy)
        own.save(session, requested=requested, allocated=decided, revocations=done, gate=self._gate)
        faults.point("decide:recorded")
        self._apply(session, scan)

    def _decide(self, requested: Requested | None, busy: frozenset[str]) -> Allocated | None:
        """Decide what the pod gets. Before it gets another real GPU, survey all GPUs and decide once more."""
        decided = self._decision(requested, busy)
        shares = decided.allocated.shares if decided.allocated else ()
        new = {share.uuid for share in shares} - self._own.held
        if any(not self._registry.seen[uuid].simulated for uuid in new):
            self._scanner.survey()
            decided = self._decision(requested, busy)
        self._due = decided.due
        return decided.allocated

    def _decision(self, requested: Requested | None, busy: frozenset[str]) -> Decided:
        from .decision import decision  # with the first one: a start must not wait for it

        return decision(
            self._own.uid,
            self._own.record,
            requested,
            busy=busy,
            resting=self._uses.resting,
            gpus=self.gpus,
            used_outside=self._scanner.strangers.used,
            other_pods=self._others,
            unreadable=bool(self._own.others.unreadable),
            patience=self._patience,
            now=since_boot(),
            users=self._limits.of(self._own.record, self._others),
        )

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs that can be decided about; a share may name its memory where the gate limits its programs to it."""
        return tuple(_with_gate(gpu) for gpu in self._registry.gpus) if self._gate else self._registry.gpus

    @property
    def _gate(self) -> bool:
        return self._guard.mode is not Mode.SOFT and self._client.limits_memory

    @property
    def _others(self) -> tuple[OtherPod, ...]:
        return tuple(pod for pod in self._own.others.pods if pod.uid not in self._empty)

    @property
    def _waits(self) -> bool:
        """Whether it gets more, or may have more, once others give back.

        It is in line, shares its user's limit, or what it was given waits for memory that others use.
        """
        allocated = self._own.record.allocated
        limit = allocated.limit if allocated else None
        shared = limit is not None and limit.max is not None and limit.milli is not None and limit.milli < limit.max
        return self._own.owed or shared or self._lacks_memory

    def _is_taken_back(self) -> bool:
        """Tell whether what the pod has above its limit is taken back now."""
        allocated = self._own.record.allocated
        limit = allocated.limit if allocated else None
        return limit is not None and limit.give_back_at is not None and limit.give_back_at <= time.time()

    def _apply(self, session: Session, scan: ScanResult) -> None:
        """Turn `allocated` into rules in force and `attached`; only what ``scan`` was for can be released."""
        own, strangers, seen = self._own, self._scanner.strangers, self._registry.seen
        record = own.record
        if record.allocated is None:
            return
        from jupyter_gpu_node.agent.rules.plan import (  # with the first GPU: a start must not wait for it
            Observation,
            plan,
        )

        from .sharing.rules.memory_room import told

        allocated = self._permitted(record.allocated)
        # What waits was never open: nothing of it need be proven closed.
        known = {share.uuid for share in record.attached.shares} | own.draining if record.attached else set()
        waits = {share.uuid for share in record.allocated.shares} - {share.uuid for share in allocated.shares} - known
        unproven = own.held - scan.scanned - waits
        # A GPU that others than pods use (a display) is used by them after we gave it back as well. What drains has
        # been ours: what has it open may have it from us.
        added = {share.uuid for share in allocated.shares} - self._guard.allowed - own.draining
        real = {gpu for gpu in added if not seen[gpu].simulated}
        if real:
            if not real <= strangers.podless.keys():
                self._scanner.survey()
            outside = frozenset(record.outside).union(*(strangers.podless.get(gpu, frozenset()) for gpu in real))
            own.save(session, outside=tuple(sorted(filter(alive, outside))))
        observed = Observation(self._guard.allowed | unproven, {**self._scanner.drained.holders, **scan.holders})
        after = plan(allocated, record.attached, observed, self._registry.unhealthy)
        if self._guard.allow(after.allowed, seen, self._registry.devices):
            faults.point("rules:applied")
            attached = self._uses.record_in(after.attached)
            own.save(session, attached=told(attached, record.attached) if self._lacks_memory else attached)

    def _permitted(self, allocated: Allocated) -> Allocated:
        """Return what of a decision may be attached now: all of it unless a share waits for memory."""
        from .sharing.rules.memory_room import permitted  # as in _apply

        others = None if self._own.others.unreadable else [pod.record for pod in self._others]
        memory = {uuid: gpu.memory for uuid, gpu in self._registry.seen.items()}
        shares = permitted(self._own.record, others, memory, ())
        if shares != allocated.shares:
            shares = permitted(self._own.record, others, memory, self._client.found_room())
        self._lacks_memory = shares != allocated.shares
        return replace(allocated, shares=shares) if self._lacks_memory else allocated

    def _reap(self) -> bool:
        """Remove the dead pods of which nothing is left; return whether one of them held something."""
        dead = [pod for pod in self._own.others.dead if pod.uid not in self._empty]
        if not dead:
            return False
        from .cleanup import reap  # as in _decision

        scanner, group = self._scanner, self._guard.processes.group
        beside = group.parent if group else None
        gone, left = reap(self._store, dead, self._registry.seen, scanner.sharing(), scanner.exemptions(), beside)
        self._empty |= gone
        self._remains = frozenset(process for pid in left if (process := identify(pid)))
        return any(pod.held for pod in dead if pod.uid in gone)

    def follow(self) -> None:
        """Have time shares served as the pod holds them now."""
        self._client.follow(self._own.milli_by_gpu)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def _plan_ahead(self, before: Record) -> None:
        """Plan the next reconcile that no event causes. An idle pod plans none."""
        own, strangers, others = self._own, self._scanner.strangers, self._own.others
        if without_use(own.record).attached != without_use(before).attached:
            self._schedule.restart()
            strangers.granted(time.monotonic())
        pauses = []
        if own.draining:
            pauses.append(self._schedule.back_off())
        in_the_way = any(pod.held for pod in others.dead if pod.uid not in self._empty)
        if self._waits and (in_the_way or others.unreadable):
            pauses.append(RETRY)
        if self._guard.problem:
            pauses.append(RETRY)
        if self._client.waits or self._lacks_memory:  # the arbiter notifies us, unless it is killed before
            pauses.append(RETRY)
        if own.held:
            now = time.monotonic()
            pauses += [INTERVAL, strangers.pause(now), self._uses.pause(now)]
        if (ahead := self._overdue_in()) > 0:  # from then on it may have what is kept back for pods that came later
            pauses.append(ahead)
        if self._due is not None:
            pauses.append(max(0.0, self._due - time.time()) + SOON)
        if self._limits.recheck is not None:
            pauses.append(self._limits.recheck)
        self._schedule.plan(pauses)

    def _overdue_in(self) -> float:
        """Return the seconds until it has waited for too long; 0: it has, or does not wait."""
        from jupyter_gpu_scheduler.rules.queue.aging import overdue_at  # as in _decision

        when = overdue_at(self._own.record.allocated, self._patience)
        return 0.0 if when is None else max(0.0, when - since_boot())

    @property
    def watched(self) -> frozenset[ProcessId]:
        """The processes whose end may free what we wait for: a killed server does not notify us."""
        own = self._own
        servers = (pod.record.server for pod in own.others.pods if not pod.dead and pod.held)
        waited_for = frozenset(servers) | self._remains if self._waits else frozenset()
        draining = self._scanner.drained.processes if own.draining else frozenset()
        return waited_for | draining | self._scanner.strangers.watched(own.held)


def _with_gate(gpu: Gpu) -> Gpu:
    return replace(gpu, gate=True) if gpu.vendor == NVIDIA else gpu
