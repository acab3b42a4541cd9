"""The pod of this server: the jobs that its backend has done. Everything here runs in the worker thread."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration
from jupyter_gpu.model.reservation import WishChange, resolve
from jupyter_gpu.model.view import GpuLoad, Mode, View
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus.registry import Registry

from .guard import PodGuard
from .job_result import JobResult
from .limits.machine_limits import MachineLimits
from .limits.watch import LimitWatch
from .processes.pod_processes import take_back
from .records.other_pods import read_others
from .records.own_record import OwnRecord
from .records.record import without
from .records.store import StateStore, plain_errors
from .rules.views import KnownState, ShareTroubles, Troubles, Visibility, compose
from .scans.pod_scanner import PodScanner
from .schedule import Schedule
from .settings import Settings
from .sharing.pod_client import PodClient
from .site import surroundings
from .site.rules.site_limit import SiteLimit
from .sources import open_source, simulated_folder
from .steps import Parts, Steps

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import GpuDetails
    from jupyter_gpu.model.limits.pod_limit import PodLimit
    from jupyter_gpu.model.machine import Machine, Shown
    from jupyter_gpu.model.share import ShareUse

_log = logging.getLogger(__name__)

FAREWELL = 1.0
"""Seconds that a server that ends waits for the last of its processes, before it leaves the rest to others."""


class Pod:
    """The jobs of one pod, and the view of its state after each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = StateStore(settings.state_dir)
        self._own = OwnRecord(self._store, settings.limit)
        self._guard = PodGuard(self.uid, settings.pid or os.getpid())
        follows = settings.follow_visible_devices and not settings.simulated_gpus
        self._site = SiteLimit(surroundings.site_limit(os.environ, self._store.pods) if follows else None)
        self._registry = Registry(
            partial(open_source, settings, self._store, self._guard.move_out, lambda: self._guard.soft),
            choose=self._site.choose,
        )
        self._scanner = PodScanner(self._own, self._registry, self._guard, settings.system_holders)
        self._client = PodClient(self._store.path, self.uid, self._guard.move_out, self._own.notify_self)
        self._schedule = Schedule(self._store)
        self._limits = MachineLimits(self._store.path)
        self._steps = Steps(
            Parts(
                self._store,
                self._own,
                self._registry,
                self._guard,
                self._scanner,
                self._client,
                self._schedule,
                self._limits,
            ),
            settings.patience,
        )
        self._new = True
        self._surroundings = surroundings.surroundings(self._store.path, chosen=settings.state_dir is not None)
        self._revoked: tuple[tuple[str, str], ...] = ()
        self.view = View(self.uid, 0, Mode.SOFT, bool(settings.simulated_gpus), "local", 0, 0, (0,))

    @property
    def uid(self) -> str:
        """Identity of the pod; a new one at each start of the server."""
        return self._own.uid

    @property
    def environment(self) -> Mapping[str, str]:
        """The mark by which processes of the pod are known where there is no control group; where simulated GPUs are.

        And what programs that take turns on GPUs need beside `search_path`.
        """
        simulated = (
            {simulated_gpus.VARIABLE: str(simulated_folder(self._store))} if self._settings.simulated_gpus else {}
        )
        limit = {surroundings.SITE: self._site.value} if self._site.value is not None else {}
        return {MARK: self.uid, **simulated, **limit, **self._client.environment}

    def search_path(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables by which programs with this environment take turns. Blocks; any thread may ask."""
        return self._client.search_path(environ)

    @property
    def _of_this_process(self) -> bool:
        return self._settings.pid in (None, os.getpid())

    def start(self) -> None:
        """Guard all GPUs, then join the others. If the state directory fails, nothing is granted until it works."""
        settings = self._settings
        with self._schedule.may_fail():
            with self._store.locked() as session:
                self._own.join(session)  # first of all: if we are killed, others know what to look for
            faults.point("start:recorded")
        with self._schedule.may_fail():
            self._registry.open()  # before the group is entered: what asks the driver must see all GPUs
            if settings.simulated_gpus:
                self._registry.take()
        bare = "" if settings.simulated_gpus else surroundings.one_for_all()
        self._guard.enter(self._registry.devices, settings.enforcement, bare)
        faults.point("start:guarded")
        if self._of_this_process:
            os.environ.update(self.environment)  # what it starts by itself, such as terminals, inherits it
        self._own.enter(self._guard.recorded)
        with self._schedule.may_fail(), self._store.locked() as session:
            self._own.join(session)

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
        from jupyter_gpu.model.refusal import refusal  # with the first wish: not for a start

        self._scanner.ask_driver()
        error = refusal(
            wish, requested, limit=self._settings.limit, of_user=self._user_limit(), gpus=self._registry.gpus
        )
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

    def watch_limits(self) -> LimitWatch:
        """Return a watch on the limits of the machine's users."""
        return LimitWatch(self._limits.paths)

    def reconcile(self) -> None:
        """Reconcile everything; failures are shown in the view and tried again."""
        held, strangers = self._own.held, self._scanner.strangers
        with self._schedule.may_fail():
            self._registry.take()
            self._scanner.ask_driver()
            if held and strangers.due(held, time.monotonic()):
                self._scanner.survey()
            self._steps.advance(None, thorough=self._new)
            if self._new and self._of_this_process:
                self._client.prepare()
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
            everybody = claims(self._own.record, read_others(found.entries, self.uid))
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
        take_back(self.environment)
        self._client.forget()
        with self._schedule.may_fail(), self._store.locked() as session:
            if left:
                self._own.save(session, ended=True)
                session.discard(f"{self.uid}.sock")
            else:
                session.remove(self.uid)
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
            patience = time.monotonic() + (FAREWELL if self._of_this_process else 0)
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
        )
        view = compose(self.view.version, state, self._settings)
        if view != self.view:
            surroundings.warn_of(set(view.conditions) - set(self.view.conditions))
            self.view = replace(view, version=self.view.version + 1)
        return JobResult(self.view, own.socket, self._schedule.due, self._steps.watched)
