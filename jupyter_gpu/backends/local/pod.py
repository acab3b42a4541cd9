"""The pod of this server: steps that make the recorded state actual. Everything here runs in the worker thread."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_gpu.backends.local.rules.site_limit import SiteLimit
from jupyter_gpu.backends.local.rules.views import Troubles, compose
from jupyter_gpu.backends.local.sharing.pod_client import PodClient
from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import Allocated, Requested, Wish, held
from jupyter_gpu.model.annotations import record as next_request
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.lease import Change, resolve
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.view import GpuLoad, Mode, View
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus.registry import INTERVAL, Registry
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from . import notify, surroundings
from .guard import PodGuard
from .job_result import JobResult
from .other_pods import read_others, sharers
from .pod_processes import PodProcesses, take_back
from .process_id import FIRST_NAMESPACE, alive, boot, identify, namespace, since_boot
from .record import MAX_REVOCATIONS, Record, without
from .repair import OtherPods, tidy
from .scan_result import ScanResult
from .settings import Settings
from .sources import open_source, simulated_folder
from .store import Session, StateStore, plain_errors
from .strangers import Strangers, commands

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import GpuDetails
    from jupyter_gpu.model.machine import Machine, Shown
    from jupyter_gpu.model.share import ShareUse

    from .holder_scan import Exemptions

_log = logging.getLogger(__name__)

FIRST_PAUSE, LAST_PAUSE = 0.1, 1.0
"""Seconds between two looks at a device that should be closed: few at first, backing off."""
RETRY = 1.0
"""Seconds until something that failed, or that a dead pod stands in the way of, is tried again."""
LAST_RETRY = 60.0
"""The same, of what goes on failing."""
FAREWELL = 1.0
"""Seconds that a server that ends waits for the last of its processes, before it leaves the rest to others."""
MAX_STEPS = 8
"""Most steps of one reconcile; each but the last has released something that was waited for."""


class Pod:
    """The state of one pod, and the only writer of its record."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = StateStore(settings.state_dir)
        follows = settings.follow_visible_devices and not settings.simulated_gpus
        self._site = SiteLimit(surroundings.site_limit(os.environ, self._store.pods) if follows else None)
        self._registry = Registry(
            partial(open_source, settings, self._store, self._move_out, self._unguarded), choose=self._site.choose
        )
        self._guard: PodGuard | None = None
        self._socket: socket.socket | None = None
        server = identify(os.getpid())
        assert server is not None
        self._record = Record(uuid.uuid4().hex, server, boot(), namespace(), limit=settings.limit)
        self._recorded = False
        self._new = True
        self._remains: frozenset[ProcessId] = frozenset()  # of dead pods
        self._others = OtherPods((), frozenset(), ())
        self._empty: frozenset[str] = frozenset()  # dead pods whose records we may not remove
        self._used = ScanResult()  # holders of our GPUs: to show
        self._drained = ScanResult()  # holders of GPUs that we gave back: the proof
        self._strangers = Strangers()
        self._surroundings = surroundings.surroundings(self._store.path, chosen=settings.state_dir is not None)
        self._driver_users: Mapping[str, frozenset[int]] = {}  # pids of users by uuid, where the driver must be asked
        self._unknown_users: tuple[int, ...] = ()  # GPUs whose users cannot be found out
        self._pause = FIRST_PAUSE
        self._due: float | None = None
        self._problem = ""
        self._retry = RETRY
        self._repairs: tuple[str, ...] = ()
        self._pod_client = PodClient(self._store.path, self.uid, self._move_out, self._notify_self)
        self._revoked: tuple[tuple[str, str], ...] = ()
        self.view = View(self.uid, 0, Mode.SOFT, bool(settings.simulated_gpus), "local", 0, 0, (0,))

    @property
    def uid(self) -> str:
        """Identity of the pod; a new one at each start of the server."""
        return self._record.uid

    @property
    def environment(self) -> Mapping[str, str]:
        """The mark by which processes of the pod are told where there is no control group; where simulated GPUs are.

        And what programs that take turns on GPUs need beside `search_path`.
        """
        simulated = (
            {simulated_gpus.VARIABLE: str(simulated_folder(self._store))} if self._settings.simulated_gpus else {}
        )
        limit = {surroundings.SITE: self._site.value} if self._site.value is not None else {}
        return {MARK: self.uid, **simulated, **limit, **self._pod_client.environment}

    def search_path(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables by which programs with this environment take turns. Blocks; any thread may ask."""
        return self._pod_client.search_path(environ)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Guard all GPUs, then join the others. If the state directory fails, nothing is granted until it works."""
        settings = self._settings
        with self._may_fail():
            with self._store.locked() as session:
                self._join(session)  # first of all: if we are killed, others know what to look for
            faults.point("start:recorded")
        with self._may_fail():
            self._registry.open()  # before the group is entered: what asks the driver must see all GPUs
            if settings.simulated_gpus:
                self._registry.take()
        pid = settings.pid or os.getpid()
        bare = "" if settings.simulated_gpus else surroundings.one_for_all()
        self._guard = PodGuard(self.uid, pid, self._registry.devices, settings.enforcement, bare)
        faults.point("start:guarded")
        if pid == os.getpid():
            os.environ.update(self.environment)  # what it starts by itself, such as terminals, inherits it
        self._record = self._record._replace(place=self._guard.recorded)
        self._recorded = False
        with self._may_fail(), self._store.locked() as session:
            self._join(session)

    def request(self, wish: Wish | Change, generation: int | None) -> None:
        """Record a wish and do what can be done about it now."""
        current = self._record.requested.generation if self._record.requested else 0
        if generation is not None and generation != current:
            raise StaleGeneration(current=current)
        wish = resolve(wish, self._record.requested)
        if wish.priority is None and self._settings.priority:
            wish = replace(wish, priority=self._settings.priority)
        with plain_errors(self._store):
            self._registry.take()
        from jupyter_gpu.model.feasible import refuse  # as in _decision

        self._ask_driver()
        error = refuse(wish, limit=self._settings.limit, gpus=self._registry.gpus)
        if error is not None:
            raise error
        self._repairs = self._revoked = ()
        self._pause = FIRST_PAUSE
        try:
            with plain_errors(self._store):
                self._advance(wish)
        except BackendUnavailable as failure:
            self._try_again(failure)
            raise

    def reconcile(self) -> None:
        """Look again at everything; failures are shown in the view and tried again."""
        with self._may_fail():
            self._registry.take()
            self._ask_driver()
            if self._held() and self._strangers.due(self._held(), time.monotonic()):
                self._survey()
            self._advance(None, thorough=self._new)
            if self._new and self._settings.pid in (None, os.getpid()):
                self._pod_client.prepare()
            self._new = False
            self._apply_revocations()

    def sample(self) -> tuple[Mapping[str, GpuLoad], Mapping[str, ShareUse]]:
        """Return the load of the pod's GPUs and the use of its shares, after a fresh look at their holders."""
        with self._may_fail():
            if self._registry.take():
                self._advance(None)
        mine = self._held()
        self._ask_driver()
        self._scan_own()
        shares = self._record.attached.shares if self._record.attached else ()
        return self._registry.loads(mine), self._pod_client.sample(
            share.uuid for share in shares if not share.exclusive
        )

    def details(self) -> Mapping[str, GpuDetails]:
        """Return the details of the pod's GPUs beyond their load, for its user; by uuid."""
        from jupyter_gpu.model.details import named

        known = {uuid: {holder.pid: holder for holder in holders} for uuid, holders in self._scan_own().holders.items()}
        return {uuid: named(found, known.get(uuid, {})) for uuid, found in self._registry.details(self._held()).items()}

    def machine(self, shown: Shown) -> Machine:
        """Return all GPUs with their owners and the waiting pods, as far as ``shown`` goes."""
        from jupyter_gpu.model.overview import overview

        from .servers import claims

        with plain_errors(self._store):
            with self._store.locked() as session:
                found = session.read()
            everybody = claims(self._record, read_others(found.entries, self.uid))
            loads = self._registry.loads(frozenset(gpu.uuid for gpu in self._registry.gpus))
            return overview(self._registry.gpus, everybody, loads, shown)

    def _scan_own(self) -> ScanResult:
        self._used = self._scan(self._held(), proof=False)
        return self._used

    def give_back(self) -> None:
        """End the pod: everything that is closed is free at once, the rest when its last process is gone."""
        with self._may_fail():
            # No other server may come for a long time: what a dead server has left is removed now, too.
            self._advance(Wish(0) if self._held() else None, thorough=True)
        faults.point("stop:released")
        left = not self._leave() or bool(self._draining())
        faults.point("stop:left")
        take_back(self.environment)
        self._pod_client.forget()
        with self._may_fail(), self._store.locked() as session:
            if left:
                self._save(session, ended=True)
                session.discard(f"{self.uid}.sock")
            else:
                session.remove(self.uid)
        with contextlib.suppress(BackendUnavailable, OSError):
            self._notify_others()
        self._follow()
        self._pod_client.close(left=left)
        self._registry.close()
        self._due = None

    def _notify_self(self) -> None:
        with contextlib.suppress(OSError):
            notify.send(self._store.pods, [f"{self.uid}.sock"])

    def _move_out(self, pid: int) -> None:
        """Move a helper that was started later out of the pod's group, into the one above."""
        group = self._guard.processes.group if self._guard else None
        if group is not None:
            cgroup.enter(group.parent, pid)

    def _unguarded(self) -> bool:
        return self._guard is not None and self._guard.mode is Mode.SOFT

    def _leave(self) -> bool:
        if self._guard is None:
            return True
        try:
            # Programs that the server started end with it, but not in the same instant.
            ours = self._settings.pid in (None, os.getpid())
            patience = time.monotonic() + (FAREWELL if ours else 0)
            while not (left := self._guard.leave()) and time.monotonic() < patience:
                time.sleep(0.02)
            return left
        except OSError as error:
            _log.warning("The control group of this server can't be left: %s", error)
            return False

    def outcome(self) -> JobResult:
        """Return the result of a job, failed or not."""
        client = self._pod_client
        damaged = len(self._others.unreadable)
        place = (self._surroundings, self._strangers.elsewhere, self._unknown_users, self._site)
        troubles = Troubles(
            self._problem, damaged, self._repairs, client.missing, client.trouble, client.notice, self._revoked, *place
        )
        known = (
            self._record,
            self._registry,
            self._guard,
            self._settings,
            troubles,
            self._used,
            self._strangers.told(),
        )
        view = compose(self.view.version, *known)
        if view != self.view:
            surroundings.warn_of(set(view.conditions) - set(self.view.conditions))
            self.view = replace(view, version=self.view.version + 1)
        return JobResult(self.view, self._socket, self._due, self._watch())

    # -- one step -----------------------------------------------------------------------------------------------------

    def _advance(
        self, wish: Wish | None, *, thorough: bool = False, revocation: str = "", busy: frozenset[str] | None = None
    ) -> None:
        """Take step after step until nothing changes any more by itself.

        ``thorough``: look also whether dead pods have left something when this pod waits for nothing. ``revocation``:
        the key of the one that this carries out. ``busy``: GPUs that should stay, in place of those that are in use.
        """
        before = self._record
        # Idle GPUs go first; where all or none of them go there is nothing to choose.
        if busy is None:
            choice = wish is not None and 0 < wish.milli < self._milli()
            busy = self._scan(self._held(), proof=False).busy if choice else frozenset()
        scan = ScanResult()
        try:
            for _ in range(MAX_STEPS):
                drained = self._draining()
                with self._store.locked() as session:
                    self._step(session, wish, busy, scan, revocation)
                wish, revocation = None, ""
                if self._draining() - scan.scanned:
                    scan = self._drained = self._scan(self._draining())
                    faults.point("look:done")
                    continue
                released = bool(drained - self._draining())
                if not (self._owed() and released) and not ((self._owed() or thorough) and self._reap()):
                    break
                thorough = False
                scan = ScanResult()  # a proof is good for one decision: the next may grant the same GPU again
        finally:
            self._follow()
            self._plan_ahead(before)
            if self._record != before:
                faults.point("attach:recorded")
                self._notify_others()
        self._problem = ""
        self._retry = RETRY

    def _step(
        self, session: Session, wish: Wish | None, busy: frozenset[str], scan: ScanResult, revocation: str
    ) -> None:
        """Read, record the wish, decide, apply, and record, all under the lock."""
        self._join(session)
        self._strangers.podless = {}  # a look is good for one decision
        requested = self._record.requested
        if wish is not None:
            requested = next_request(requested, wish)
        if not self._registry.known:
            self._save(session, requested=requested)
            return
        # The wish and its answer in one write: no other server sees one without the other.
        known = self._record.revocations
        done = (*known, revocation)[-MAX_REVOCATIONS:] if revocation else known
        self._save(session, requested=requested, allocated=self._decide(requested, busy), revocations=done)
        faults.point("decide:recorded")
        self._apply(session, scan)

    def _join(self, session: Session) -> None:
        """See which other pods are there, and see to it that our own record is what we know."""
        found = session.read()
        self._others = tidy(self._store, session, found, self.uid)
        self._repairs += self._others.repairs
        mine = found.entries.get(self.uid)
        if mine is None or mine.record != self._record or mine.owner != os.geteuid():
            if self._recorded:
                self._drop_granted_elsewhere(found.damaged.get(self.uid) or "somebody removed or changed it")
            session.write(self._record)
            self._recorded = True
        if self.uid not in found.sockets or self._socket is None:
            self._socket = notify.listen(self._store.pods, f"{self.uid}.sock")

    def _drop_granted_elsewhere(self, why: str) -> None:
        """Give up what others were granted while our record was gone: that is theirs now."""
        self._repairs += (f"This server's record was damaged and was written again: {why}.",)
        _log.warning("%s", self._repairs[-1])
        allocated = self._record.allocated
        if allocated is None:
            return
        taken: dict[str, int] = {}
        for other in self._others.pods:
            for gpu, milli in other.held.items():
                taken[gpu] = taken.get(gpu, 0) + milli
        kept = tuple(s for s in allocated.shares if taken.get(s.uuid, 0) + s.milli <= MILLI_PER_GPU)
        self._record = self._record._replace(allocated=replace(allocated, shares=kept))

    def _decide(self, requested: Requested | None, busy: frozenset[str]) -> Allocated | None:
        """Decide what the pod gets. Before it gets another real GPU, survey all GPUs and decide once more."""
        decided = self._decision(requested, busy)
        new = {share.uuid for share in decided.shares} - self._held() if decided else set()
        if not any(not self._registry.seen[uuid].simulated for uuid in new):
            return decided
        self._survey()
        return self._decision(requested, busy)

    def _decision(self, requested: Requested | None, busy: frozenset[str]) -> Allocated | None:
        from .decision import decision  # with the first one: a start must not wait for it

        return decision(
            self.uid,
            self._record,
            requested,
            busy=busy,
            gpus=self._registry.gpus,
            used_outside=self._strangers.used,
            other_pods=(pod for pod in self._others.pods if pod.uid not in self._empty),
            unreadable=bool(self._others.unreadable),
            patience=self._settings.patience,
            now=since_boot(),
        )

    def _apply(self, session: Session, scan: ScanResult) -> None:
        """Turn `allocated` into rules in force and `attached`; only what ``scan`` has looked at can be released."""
        record = self._record
        if record.allocated is None:
            return
        from jupyter_gpu_node.agent.rules.plan import (  # with the first GPU: a start must not wait for it
            Observation,
            plan,
        )

        assert self._guard is not None
        unproven = self._held() - scan.scanned
        # A GPU that others than pods use (a display) is used by them after we gave it back as well. What drains has
        # been ours: what has it open may have it from us.
        added = {share.uuid for share in record.allocated.shares} - self._guard.allowed - self._draining()
        real = {gpu for gpu in added if not self._registry.seen[gpu].simulated}
        if real:
            if not real <= self._strangers.podless.keys():
                self._survey()
            known = frozenset(record.outside).union(*(self._strangers.podless.get(gpu, frozenset()) for gpu in real))
            self._save(session, outside=tuple(sorted(filter(alive, known))))
        seen = Observation(self._guard.allowed | unproven, {**self._drained.holders, **scan.holders})
        after = plan(record.allocated, record.attached, seen, self._registry.unhealthy)
        if self._guard.allow(after.allowed, self._registry.seen, self._registry.devices):
            faults.point("rules:applied")
            self._save(session, attached=after.attached)

    def _reap(self) -> bool:
        """Remove the dead pods of which nothing is left; return whether one of them held something."""
        dead = [pod for pod in self._others.dead if pod.uid not in self._empty]
        if not dead:
            return False
        from .cleanup import reap  # as in _scan

        own = self._guard.processes.group if self._guard else None
        gone, left = reap(
            self._store, dead, self._registry.seen, self._sharing(), self._exemptions(), own.parent if own else None
        )
        self._empty |= gone
        self._remains = frozenset(process for pid in left if (process := identify(pid)))
        return any(pod.held for pod in dead if pod.uid in gone)

    def _save(self, session: Session, **changes: Any) -> None:
        """Change our record; the file first, so that a failure leaves us knowing what is written."""
        after = self._record._replace(**changes)
        if after != self._record:
            session.write(after)
            self._record = after

    # -- time shares --------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        self._pod_client.follow(held(self._record.allocated, self._record.attached))

    def _apply_revocations(self) -> None:
        """Give back what the arbiter has taken away, once for each revocation."""
        for revocation in self._pod_client.revocations():
            if revocation.key in self._record.revocations:
                continue
            ours = self._guard.processes.pids() if self._guard else frozenset()
            holders = self._scan(frozenset({revocation.gpu} & self._registry.seen.keys()), proof=False).processes
            named = revocation.processes if self._pod_client.trusted else ()
            guilty = {process for process in {*named, *holders} if process.pid in ours}
            wish = without(self._record, revocation.gpu)
            keep = self._held() - {revocation.gpu}
            self._advance(wish, revocation=revocation.key, busy=keep)
            if wish is not None:
                gpu = self._registry.seen.get(revocation.gpu)
                self._revoked += ((f"GPU {gpu.index}" if gpu else revocation.gpu, revocation.reason),)
            from jupyter_gpu.backends.local.sharing.ending import end  # needed only where a rule was broken

            end(guilty - {self._record.server})

    # -- state ---------------------------------------------------------------------------------------------------------

    def _held(self) -> frozenset[str]:
        return frozenset(held(self._record.allocated, self._record.attached))

    def _milli(self) -> int:
        return total(self._record.allocated.shares) if self._record.allocated else 0

    def _owed(self) -> bool:
        return self._record.allocated is not None and self._record.allocated.ticket is not None

    def _draining(self) -> frozenset[str]:
        return frozenset(item.uuid for item in self._record.attached.draining) if self._record.attached else frozenset()

    def _sharing(self) -> dict[str, tuple[PodProcesses, ...]]:
        found = sharers(self._others.pods)
        if self._guard:
            for gpu in self._held():
                found[gpu] = (*found.get(gpu, ()), self._guard.processes)
        return found

    def _exemptions(self) -> Exemptions:
        from .holder_scan import Exemptions  # as in _scan

        return Exemptions(commands(self._settings.system_holders), helpers=self._registry.helpers())

    def _ask_driver(self) -> None:
        """Ask the driver for users of GPUs that `/proc` does not show us. Its pids are the machine's own."""
        blind = os.geteuid() != 0
        asked = [gpu.uuid for gpu in self._registry.gpus if not gpu.simulated and (blind or gpu.device is None)]
        self._driver_users = self._registry.users(asked) if namespace() == FIRST_NAMESPACE else {}
        bare = [gpu for gpu in self._registry.gpus if not gpu.simulated and gpu.device is None]
        self._unknown_users = tuple(gpu.index for gpu in bare if gpu.uuid not in self._driver_users)

    def _survey(self) -> None:
        """Look at the users of all GPUs."""
        gpus = self._registry.gpus
        real = not all(gpu.simulated for gpu in gpus)
        found = self._scan(frozenset(gpu.uuid for gpu in gpus), proof=False, mappings=real)
        self._strangers.survey(found.podless, time.monotonic())

    def _scan(self, uuids: frozenset[str], *, proof: bool = True, mappings: bool = False) -> ScanResult:
        from .holder_scan import Scope, Suspects, families, scan  # with the first GPU: a start must not wait for it

        assert self._guard is not None
        if proof:
            self._ask_driver()
        other_pods = self._others.pods
        scope = Scope(
            pod=self._guard.processes,
            sharers=sharers(other_pods),
            pods=[other_pod.processes for other_pod in other_pods],
            families=families(other_pods, uuids, self._record),
            told=self._driver_users,
            exemptions=replace(self._exemptions(), outside=frozenset(self._record.outside)),
            suspects=Suspects(self._record.server) if proof and self._guard.mode is Mode.ENFORCED else None,
        )
        found = scan((self._registry.seen[gpu] for gpu in uuids), scope, proof=proof, mappings=mappings)
        self._strangers.note(found.strangers, {self.uid, *self._others.unreadable, *(one.uid for one in other_pods)})
        return found._replace(scanned=uuids)

    # -- what comes next ----------------------------------------------------------------------------------------------

    def _plan_ahead(self, before: Record) -> None:
        """Plan the next look that no event causes. An idle pod plans none."""
        record = self._record
        if record.attached != before.attached:
            self._pause = FIRST_PAUSE
            self._strangers.granted(time.monotonic())
        pauses = []
        if self._draining():
            pauses.append(self._pause)
            self._pause = min(self._pause * 1.5, LAST_PAUSE)
        in_the_way = any(pod.held for pod in self._others.dead if pod.uid not in self._empty)
        if self._owed() and (in_the_way or self._others.unreadable):
            pauses.append(RETRY)
        if self._guard and self._guard.problem:
            pauses.append(RETRY)
        if self._pod_client.waits:
            pauses.append(RETRY)
        if self._held():
            pauses += [INTERVAL, self._strangers.pause(time.monotonic())]
        if (ahead := self._overdue_in()) > 0:  # from then on it may have what is kept back for pods that came later
            pauses.append(ahead)
        self._due = time.monotonic() + min(pauses) if pauses else None

    def _overdue_in(self) -> float:
        """Return the seconds until it has waited for too long; 0: it has, or does not wait."""
        from jupyter_gpu_scheduler.rules.queue.aging import overdue_at  # as in _decision

        when = overdue_at(self._record.allocated, self._settings.patience)
        return 0.0 if when is None else max(0.0, when - since_boot())

    def _watch(self) -> frozenset[ProcessId]:
        """Return the processes whose end may free what we wait for: a killed server does not notify us."""
        servers = (pod.record.server for pod in self._others.pods if not pod.dead and pod.held)
        waited_for = frozenset(servers) | self._remains if self._owed() else frozenset()
        draining = self._drained.processes if self._draining() else frozenset()
        return waited_for | draining | self._strangers.watched(self._held())

    def _notify_others(self) -> None:
        notify.send(self._store.pods, (f"{pod.uid}.sock" for pod in self._others.pods if not pod.dead))

    @contextlib.contextmanager
    def _may_fail(self) -> Any:
        """Show the failure of background work in the view, and try again later."""
        try:
            with plain_errors(self._store):
                yield
        except BackendUnavailable as error:
            self._try_again(error)

    def _try_again(self, error: BackendUnavailable) -> None:
        if error.message != self._problem:
            _log.warning("%s", error.message)
        self._problem = error.message
        self._due = time.monotonic() + self._retry
        self._retry = min(self._retry * 2, LAST_RETRY)
