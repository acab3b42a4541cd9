"""The scans of one pod for the processes that have GPUs open."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_gpu.backends.local.guard import PodGuard
from jupyter_gpu.backends.local.processes.identity import FIRST_NAMESPACE, namespace
from jupyter_gpu.backends.local.processes.pod_processes import PodProcesses
from jupyter_gpu.backends.local.records.other_pods import sharers
from jupyter_gpu.backends.local.records.own_record import OwnRecord
from jupyter_gpu.model.view import Mode
from jupyter_gpu_node.gpus.registry import Registry

from .scan_result import ScanResult
from .strangers import Strangers, commands

if TYPE_CHECKING:  # loaded with the first GPU, not when a server starts
    from jupyter_gpu_node.processes.proc import ProcessInfo

    from .holder_scan import Exemptions


class PodScanner:
    """The scans of one pod, and the results that its view shows."""

    def __init__(self, own: OwnRecord, registry: Registry, guard: PodGuard, system_holders: tuple[str, ...]) -> None:
        """``system_holders``: names of programs outside every pod that may have GPUs open for ever."""
        self._own = own
        self._registry = registry
        self._guard = guard
        self._system_holders = system_holders
        self._driver_users: Mapping[str, frozenset[int]] = {}  # pids of users by uuid, where the driver must be asked
        self.used = ScanResult()
        """Holders of the pod's GPUs: to show."""
        self.drained = ScanResult()
        """Holders of the GPUs that it gave back: the proof."""
        self.strangers = Strangers()
        self.unknown_users: tuple[int, ...] = ()
        """Indices of the GPUs whose users cannot be found out."""

    def scan_held(self) -> ScanResult:
        """Scan for the users of the pod's GPUs, to show them."""
        self.used = self.scan(self._own.held, proof=False)
        return self.used

    def scan_draining(self) -> ScanResult:
        """Scan for the holders of the GPUs that the pod gave back: the proof."""
        self.drained = self.scan(self._own.draining)
        return self.drained

    def survey(self) -> None:
        """Scan for the users of all GPUs."""
        gpus = self._registry.gpus
        real = not all(gpu.simulated for gpu in gpus)
        found = self.scan(frozenset(gpu.uuid for gpu in gpus), proof=False, mappings=real)
        self.strangers.survey(found.podless, time.monotonic())

    def scan(self, uuids: frozenset[str], *, proof: bool = True, mappings: bool = False) -> ScanResult:
        """Scan for the holders of these GPUs, see `holder_scan.scan`."""
        from .holder_scan import Scope, Suspects, families, scan  # with the first GPU: a start must not wait for it

        if proof:
            self.ask_driver()
        record, other_pods = self._own.record, self._own.others.pods
        scope = Scope(
            pod=self._guard.processes,
            sharers=sharers(other_pods),
            pods=[other_pod.processes for other_pod in other_pods],
            families=families(other_pods, uuids, record),
            driver_users=self._driver_users,
            kept=self._kept(uuids),
            exemptions=replace(self.exemptions(), outside=frozenset(record.outside)),
            suspects=Suspects(record.server) if proof and self._guard.mode is Mode.ENFORCED else None,
        )
        found = scan((self._registry.seen[gpu] for gpu in uuids), scope, proof=proof, mappings=mappings)
        recorded = {self._own.uid, *self._own.others.unreadable, *(one.uid for one in other_pods)}
        self.strangers.note(found.strangers, recorded)
        return found._replace(scanned=uuids)

    def _kept(self, uuids: frozenset[str]) -> Mapping[str, frozenset[int]]:
        """Return the processes for which a driver keeps these GPUs; its pids are the machine's own.

        Without device rules it keeps all GPUs for every program that uses one: then that says nothing.
        """
        if self._guard.mode is not Mode.ENFORCED or namespace() != FIRST_NAMESPACE:
            return {}
        return self._registry.holders(uuids)

    def opened(self, uuids: Iterable[str]) -> Mapping[str, tuple[ProcessInfo, ...]]:
        """Return the pod's own processes that have these GPUs open; only GPUs that some process has: to choose by."""
        from .holder_scan import opened  # as in scan

        helpers = self._registry.helpers() if self._guard.mode is Mode.SOFT else frozenset()
        pids = self._guard.processes.pids() - helpers
        return opened([self._registry.seen[uuid] for uuid in uuids], pids, self._driver_users)

    def ask_driver(self) -> None:
        """Ask the driver for users of GPUs that `/proc` does not show us. Its pids are the machine's own."""
        blind = os.geteuid() != 0
        asked = [gpu.uuid for gpu in self._registry.gpus if not gpu.simulated and (blind or gpu.device is None)]
        self._driver_users = self._registry.users(asked) if namespace() == FIRST_NAMESPACE else {}
        bare = [gpu for gpu in self._registry.gpus if not gpu.simulated and gpu.device is None]
        self.unknown_users = tuple(gpu.index for gpu in bare if gpu.uuid not in self._driver_users)

    def exemptions(self) -> Exemptions:
        """Return the processes of no pod that may have GPUs open."""
        from .holder_scan import Exemptions  # as in scan

        return Exemptions(commands(self._system_holders), helpers=self._registry.helpers())

    def sharing(self) -> dict[str, tuple[PodProcesses, ...]]:
        """Return by uuid the processes of all pods that may rightfully have it open."""
        found = sharers(self._own.others.pods)
        for gpu in self._own.held if self._guard.entered else ():
            found[gpu] = (*found.get(gpu, ()), self._guard.processes)
        return found
