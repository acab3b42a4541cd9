"""The start of a pod: its record, its GPUs and its guard. Everything here runs in the worker thread.

A Jupyter server waits for it, so it imports nothing that only later jobs need.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from jupyter_gpu.common import faults
from jupyter_gpu.model.view import Mode, View
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus import vendors
from jupyter_gpu_node.gpus.registry import Registry

from .guard import PodGuard
from .records.own_record import OwnRecord
from .records.store import StateStore
from .schedule import Schedule
from .settings import Settings
from .sharing.pod_client import PodClient
from .site import surroundings
from .site.rules.site_limit import SiteLimit
from .sources import open_source, simulated_folder


class PodStart:
    """The parts of a pod that its start needs, and the start itself."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = StateStore(settings.state_dir)
        self.own = OwnRecord(self.store, settings.limit)
        self.guard = PodGuard(self.uid, settings.pid or os.getpid())
        follows = settings.follow_visible_devices and not settings.simulated_gpus
        self.site = SiteLimit(surroundings.site_limit(os.environ, self.store.pods) if follows else None)
        self.registry = Registry(
            partial(open_source, settings, self.store, self.guard.move_out, lambda: self.guard.soft),
            vendors.devices((vendors.NVIDIA, *settings.vendors)),
            choose=self.site.choose,
        )
        self.client = PodClient(self.store.path, self.uid, self.guard.move_out, self.own.notify_self)
        self.schedule = Schedule(self.store)
        self.view = View(self.uid, 0, Mode.SOFT, bool(settings.simulated_gpus), "local", 0, 0, (0,))
        """The view until the first job is done."""

    @property
    def uid(self) -> str:
        """Identity of the pod; a new one at each start of the server."""
        return self.own.uid

    @property
    def environment(self) -> Mapping[str, str]:
        """The mark by which processes of the pod are known where there is no control group; where simulated GPUs are.

        And what programs that take turns on GPUs need beside `search_path`.
        """
        simulated = {simulated_gpus.VARIABLE: str(simulated_folder(self.store))} if self.settings.simulated_gpus else {}
        limit = {surroundings.SITE: self.site.value} if self.site.value is not None else {}
        return {MARK: self.uid, **simulated, **limit, **self.client.environment}

    def search_path(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables by which programs with this environment take turns. Blocks; any thread may ask."""
        return self.client.search_path(environ)

    @property
    def of_this_process(self) -> bool:
        """Whether the pod is that of this process, and not of another that it was told."""
        return self.settings.pid in (None, os.getpid())

    def close_gpus(self) -> None:
        """Guard all GPUs, then join the others. If the state directory fails, nothing is granted until it works.

        Raises `BackendUnavailable` if they can't be guarded; then nothing stays open, as there will be no pod.
        """
        try:
            self._close_gpus()
        except BaseException:
            self.registry.close()
            raise

    def _close_gpus(self) -> None:
        settings = self.settings
        with self.schedule.may_fail():
            with self.store.locked() as session:
                self.own.join(session)  # first of all: if we are killed, others know what to look for
            faults.point("start:recorded")
        with self.schedule.may_fail():
            self.registry.open()  # before the group is entered: what asks the driver must see all GPUs
            if settings.simulated_gpus:
                self.registry.take()
        bare = "" if settings.simulated_gpus else surroundings.one_for_all()
        self.guard.enter(self.registry.devices, settings.enforcement, bare)
        faults.point("start:guarded")
        if self.of_this_process:
            os.environ.update(self.environment)  # what it starts by itself, such as terminals, inherits it
        self.own.enter(self.guard.recorded)
        with self.schedule.may_fail(), self.store.locked() as session:
            self.own.join(session)
