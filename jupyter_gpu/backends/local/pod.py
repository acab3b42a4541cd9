"""The pod of this server: the jobs that its backend has done. Everything here runs in the worker thread."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration
from jupyter_gpu.model.gpu_kind import gpu_kinds
from jupyter_gpu.model.reservation import WishChange, resolve
from jupyter_gpu.model.view import GpuLoad

from .job_result import JobResult
from .limits.machine_limits import MachineLimits
from .limits.watch import LimitsFileWatch
from .pod_start import PodStart
from .processes.pod_processes import take_back
from .records.other_pods import read_others
from .records.record import without
from .records.store import plain_errors
from .rules.views import KnownState, ShareTroubles, Troubles, Visibility, compose
from .scans.pod_scanner import PodScanner
from .site import surroundings
from .steps import Parts, PodSteps
from .use_looks import UseLooks

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import GpuDetails
    from jupyter_gpu.model.limits.pod_limit import PodLimit
    from jupyter_gpu.model.machine import Machine, Shown
    from jupyter_gpu.model.share import ShareUse

_log = logging.getLogger(__name__)

FAREWELL = 1.0
"""Seconds that a server that ends waits for the last of its processes, before it leaves the rest to others."""


class Pod:
    """The jobs of one pod, and the view of its state after each. ``start``: its parts that were loaded first."""

    def __init__(self, start: PodStart) -> None:
        self._start, self._settings = start, start.settings
        self._store, self._own, self._guard = start.store, start.own, start.guard
        self._site, self._registry, self._client, self._schedule = (
            start.site,
            start.registry,
            start.client,
            start.schedule,
        )
        self._scanner = PodScanner(self._own, self._registry, self._guard, self._settings.system_holders)
        self._limits = MachineLimits(self._store.path, hub=self._own.record.hub_user is not None)
        self._uses = UseLooks(
            self._own,
            self._registry,
            self._scanner,
            self._client,
            every=self._settings.look,
            rest=self._settings.rest,
        )
        self._steps = PodSteps(
            Parts(
                self._store,
                self._own,
                self._registry,
                self._guard,
                self._scanner,
                self._client,
                self._schedule,
                self._limits,
                self._uses,
            ),
            self._settings.patience,
        )
        self._new = True
        self._surroundings = surroundings.surroundings(self._store.path, chosen=self._settings.state_dir is not None)
        self._revoked: tuple[tuple[str, str], ...] = ()
        self.view = start.view

    def request(self, wish: Wish | WishChange, generation: int | None) -> None:
        """Record a wish and do what can be done about it now."""
        requested = self._own.record.requested
        current = requested.generation if requested else 0
        if generation is not None and generation != current:
            raise StaleGeneration(current=current)
        wish = resolve(wish, requested)
        if wish.priority is None and self._settings.priority:
            wish = replace(wish, priority=self._settings.priority)
        with plain_errors(self._store):
            self._registry.take()
            if wish.memory:
                self._client.find_driver()  # memory can be named only where programs take it through the gate
        from jupyter_gpu.model.refusal import refusal  # with the first wish: not for a start

        self._scanner.ask_driver()
        error = refusal(wish, requested, limit=self._settings.limit, of_user=self._user_limit(), gpus=self._steps.gpus)
        if error is not None:
            raise error
        self._own.repairs = self._revoked = ()
        self._schedule.restart()
        try:
            with plain_errors(self._store):
                self._steps.advance(wish)
        except BackendUnavailable as failure:
            self._schedule.failed(failure)
            raise

    def _user_limit(self) -> PodLimit | None:
        """Return the limit of the pod's user; decided anew where it may be another by now."""
        allocated = self._own.record.allocated
        if self._limits.reload() or (self._limits.in_use and not (allocated and allocated.limit)):
            with plain_errors(self._store):
                self._steps.advance(None)
            allocated = self._own.record.allocated
        return allocated.limit if allocated else None

    @property
    def limits_changed(self) -> bool:
        """Whether the limits of the machine's users are to be read again. Any thread may ask."""
        return self._limits.is_changed()

    def watch_limits(self) -> LimitsFileWatch:
        """Return a watch on the limits of the machine's users."""
        return LimitsFileWatch(self._limits.paths)

    def reconcile(self) -> None:
        """Reconcile everything; failures are shown in the view and tried again."""
        held, strangers = self._own.held, self._scanner.strangers
        with self._schedule.may_fail():
            self._registry.take()
            self._scanner.ask_driver()
            if held and strangers.due(held, time.monotonic()):
                self._scanner.survey()
            self._uses.look()
            if self._new and self._start.of_this_process:
                self._client.prepare()
            self._steps.advance(None, thorough=self._new)
            self._new = False
            self._apply_revocations()

    def _apply_revocations(self) -> None:
        """Give back what the arbiter has taken away, once for each revocation."""
        for revocation in self._client.revocations():
            record, seen = self._own.record, self._registry.seen
            if revocation.key in record.revocations:
                continue
            ours = self._guard.processes.pids() if self._guard.entered else frozenset()
            holders = self._scanner.scan(frozenset({revocation.gpu} & seen.keys()), proof=False).processes
            named = revocation.processes if self._client.trusted else ()
            to_end = {process for process in {*named, *holders} if process.pid in ours}
            wish = without(record, revocation.gpu)
            self._steps.advance(wish, revocation=revocation.key, busy=self._own.held - {revocation.gpu})
            if wish is not None:
                gpu = seen.get(revocation.gpu)
                self._revoked += ((f"GPU {gpu.index}" if gpu else revocation.gpu, revocation.reason),)
            from .sharing.ending import end  # needed only where a rule was broken

            end(to_end - {record.server})

    def sample(self) -> tuple[Mapping[str, GpuLoad], Mapping[str, ShareUse]]:
        """Return the load of the pod's GPUs and the use of its shares, after a fresh scan for their holders."""
        with self._schedule.may_fail():
            if self._registry.take():
                self._steps.advance(None)
        self._scanner.ask_driver()
        self._scanner.scan_held()
        attached = self._own.record.attached
        shares = attached.shares if attached else ()
        return self._registry.loads(self._own.held), self._client.sample(
            share.uuid for share in shares if not share.exclusive
        )

    def details(self) -> Mapping[str, GpuDetails]:
        """Return the details of the pod's GPUs beyond their load, for its user; by uuid."""
        from jupyter_gpu.model.details import named

        holders = self._scanner.scan_held().holders
        known = {uuid: {holder.pid: holder for holder in some} for uuid, some in holders.items()}
        found = self._registry.details(self._own.held)
        return {uuid: named(reading, known.get(uuid, {})) for uuid, reading in found.items()}

    def machine(self, shown: Shown) -> Machine:
        """Return all GPUs with their owners and the waiting pods, as far as ``shown`` goes."""
        from jupyter_gpu.model.overview import overview

        from .records.servers import claims

        with plain_errors(self._store):
            with self._store.locked() as session:
                found = session.read()
            everybody = claims(self._own.record, read_others(found.entries, self._own.uid))
            loads = self._registry.loads(frozenset(gpu.uuid for gpu in self._registry.gpus))
            return overview(self._registry.gpus, everybody, loads, shown)

    def give_back(self) -> None:
        """End the pod: everything that is closed is free at once, the rest when its last process is gone."""
        with self._schedule.may_fail():
            # No other server may come for a long time: what a dead server has left is removed now, too.
            self._steps.advance(Wish(0) if self._own.held else None, thorough=True)
        faults.point("stop:released")
        left = not self._leave() or bool(self._own.draining)
        faults.point("stop:left")
        take_back(self._start.environment)
        self._client.forget()
        with self._schedule.may_fail(), self._store.locked() as session:
            if left:
                self._own.save(session, ended=True)
                session.discard(f"{self._own.uid}.sock")
            else:
                session.remove(self._own.uid)
        with contextlib.suppress(BackendUnavailable, OSError):
            self._own.notify_others()
        self._steps.follow()
        self._client.close(left=left)
        self._registry.close()
        self._schedule.stop()

    def _leave(self) -> bool:
        """Leave the guard; return whether nothing of the pod is left."""
        try:
            # Programs that the server started end with it, but not in the same instant.
            patience = time.monotonic() + (FAREWELL if self._start.of_this_process else 0)
            while not (left := self._guard.leave()) and time.monotonic() < patience:
                time.sleep(0.02)
            return left
        except OSError as error:
            _log.warning("The control group of this server can't be left: %s", error)
            return False

    def outcome(self) -> JobResult:
        """Return the result of a job, failed or not."""
        own, client, scanner = self._own, self._client, self._scanner
        shares = ShareTroubles(client.missing, client.trouble, client.notice, self._revoked)
        state = KnownState(
            own.record,
            self._registry,
            self._guard if self._guard.entered else None,
            scanner.used,
            scanner.strangers.described(),
            Troubles(self._schedule.problem, len(own.others.unreadable), own.repairs, shares, self._limits.problem),
            Visibility(self._surroundings, scanner.strangers.elsewhere, scanner.unknown_users, self._site),
            gpu_kinds(self._steps.gpus),
        )
        view = compose(self.view.version, state, self._settings)
        if view != self.view:
            surroundings.warn_of(set(view.conditions) - set(self.view.conditions))
            self.view = replace(view, version=self.view.version + 1)
        return JobResult(self.view, own.socket, self._schedule.due, self._steps.watched)
