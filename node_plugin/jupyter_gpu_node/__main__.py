"""The node plugin: ``python -m jupyter_gpu_node --settings FILE``, one on each node that has GPUs.

Its needs of the machine, with reasons:

- ``hostPID``: a GPU is proven closed by a scan of every process, as a descriptor can be passed to any of them.
- These capabilities and no others:

  - ``BPF``, ``NET_ADMIN``: load, attach, replace, query and pin device programs.
  - ``SYS_PTRACE``, ``DAC_READ_SEARCH``: look into ``/proc/<pid>/{fd,fdinfo,maps,ns}`` of other users' processes.
  - ``CHECKPOINT_RESTORE``: follow ``/proc/<pid>/map_files``: a mapping outlives its descriptor, and its path means
    nothing outside of the pod.
  - ``KILL``: end a process that has a GPU open without a grant; stop one that does not keep to its turns.
  - ``MKNOD``: device nodes of simulated GPUs; not needed with real ones.
  - ``SYS_ADMIN`` only where no bpffs is mounted: programs are then found again by name.

- ``/sys/fs/cgroup`` of the host at the same path. Writable, a pod can be held still for the milliseconds of the last
  scan of it (``cgroup.freeze``); read-only works too, but the scan is then less certain.
- ``/sys/fs/bpf``, ``/var/lib/jupyter-gpu``, ``/run/jupyter-gpu`` and the kubelet's two socket directories, writable.
- No host network, no other privilege; the root file system can be read-only. AppArmor's profile for containers
  forbids to read other processes, so it must be unconfined.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu.common.status_server import StatusServer
from jupyter_gpu.kube import Kube, Recorder, credentials
from jupyter_gpu.model.gpu import Device
from jupyter_gpu.model.service import Peer
from jupyter_gpu_node.agent import self_test
from jupyter_gpu_node.agent.agent import Agent
from jupyter_gpu_node.agent.audit import Audit
from jupyter_gpu_node.agent.inventory.host_use import HostFiles, HostUses
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.inventory.own_gpus import OwnGpus
from jupyter_gpu_node.agent.inventory.second_owners import SecondOwners
from jupyter_gpu_node.agent.metrics import Metrics
from jupyter_gpu_node.agent.pod_events import PodEvents
from jupyter_gpu_node.agent.publisher import Publisher
from jupyter_gpu_node.agent.rules.peers import Refused
from jupyter_gpu_node.agent.samples import Samples
from jupyter_gpu_node.agent.self_test import SelfTest
from jupyter_gpu_node.agent.sharing.planned_shares import NodePods
from jupyter_gpu_node.agent.sharing.sharing import NodeGate, Sharing
from jupyter_gpu_node.agent.tools import Guarding, Reports, Scans, Tools
from jupyter_gpu_node.agent.use_classes import UseClasses
from jupyter_gpu_node.agent.use_reader import PeaksOfVendors, UseReader
from jupyter_gpu_node.devices.hierarchy_check import HierarchyCheck
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus import vendors
from jupyter_gpu_node.gpus.registry import Registry
from jupyter_gpu_node.gpus.rules.vendor import Host
from jupyter_gpu_node.gpus.source import GpuSource, OurGpus
from jupyter_gpu_node.holders.rules import known_pods
from jupyter_gpu_node.holders.scanner import HolderScanner
from jupyter_gpu_node.holders.searches import Searches
from jupyter_gpu_node.kubelet import device_nodes, gate_mount
from jupyter_gpu_node.kubelet.gate_mount import Gate
from jupyter_gpu_node.kubelet.offer import Offer, Topic
from jupyter_gpu_node.kubelet.plugin import DevicePlugin, hold_lock
from jupyter_gpu_node.kubelet.pod_resources import PodResources
from jupyter_gpu_node.kubelet.pod_socket import PodSockets
from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.kubelet.rules.slots import Reconciled, SlotOwner, Unresolved
from jupyter_gpu_node.kubelet.service import Service
from jupyter_gpu_node.kubelet.slot_owners import SlotOwners
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares import origin
from jupyter_gpu_node.shares.scans.usage_by_process import NvmlUsageReader

from . import settings as settings_module
from . import supervision
from .settings import Settings

LEARN = 1.0
"""Seconds that the kubelet gets at the start to report slots that are not recorded. A step that opens a GPU waits."""
UNHEARD = 3.0
"""Seconds that the API server gets at the start to report the pods; after that, shares are served as they were last."""
_log = logging.getLogger("jupyter_gpu_node")


def source(settings: Settings) -> GpuSource:
    """Return the source of this node's GPUs that are ours. Raises `OSError` or `ValueError`."""
    return OurGpus(_every(settings), settings.managed.on(settings.node))


def _every(settings: Settings) -> GpuSource:
    if settings.simulated is not None:
        return simulated_gpus.SimulatedGpus(
            settings.state / "simulated",
            settings.simulated.count,
            first=settings.simulated.first_minor,
            node=settings.node,
            devices=settings.device_directory,
        )
    return vendors.open_sources(settings.vendors, Host())


def managed(settings: Settings) -> frozenset[Device]:
    """Return the devices that no pod may open without a grant, whether the GPUs behind them are known now or not.

    More than a node can have: rules must never deny nothing, and running pods have device nodes of former GPUs.
    """
    real = vendors.devices((vendors.NVIDIA, *settings.vendors))
    return real if settings.simulated is None else real | simulated_gpus.DEVICES


class Plugin:
    """The process, made of its parts."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self.settings = settings
        self.recorder = Recorder(kube, "jupyter-gpu-node", host=settings.node)
        self._make_inventory(kube)
        self._make_guarding()
        self._make_sharing()
        self._make_agent(kube)
        self._make_parts_with_pods()
        self.inventory.on_refresh = lambda: self.offer.set_problem(Topic.GPUS, self.inventory.problem)

    def _make_inventory(self, kube: Kube) -> None:
        """Make the parts that know the GPUs, and those that scan for the processes that have them open."""
        settings = self.settings
        self.registry = Registry(functools.partial(source, settings), managed(settings))
        check = functools.partial(device_nodes.unusable, settings=settings)
        own = OwnGpus(settings.own_gpus)
        self.inventory = Inventory(
            self.registry,
            kube,
            settings.node,
            settings.inventory_seconds,
            check=check,
            limits=lambda: allocation.has_gate(gate_mount.mounts(settings, self.gate)),
            own=own,
        )
        files = HostFiles(settings.plugins)
        self.host_uses = HostUses(kube, settings.node, lambda: self.inventory.node, files, settings.use_seconds)
        self.metrics = Metrics(lambda: self.inventory.gpus)
        self.publisher = Publisher(kube, self.recorder, self.inventory, self.metrics.writes.inc)
        self.pod_events = PodEvents()
        self.sockets = PodSockets(
            settings.slot_directory, self._answer, self.pod_events.follow, self._of_first, self._put
        )
        self.asker = 0
        self.scanner = HolderScanner(self._helpers, self.registry.holders)
        self.searches = Searches(self.scanner)

    def _make_guarding(self) -> None:
        """Make the parts that put device rules in force, and offer slots while that is possible."""
        settings = self.settings
        pins, cgroups = Pins.at(settings.pins, settings.pins_note), PodCgroups.of_this_machine(settings.cgroup)
        self.offer = Offer(lambda problem: self.plugin.set_problem(problem), self.publisher.about_node)  # noqa: PLW0108
        hierarchy = HierarchyCheck.of_this_machine(settings.cgroup)

        def attempt() -> None:
            self_test.attempt(pins, cgroups)
            hierarchy.check(tuple(self.agent.managed))

        self.self_test = SelfTest(attempt, functools.partial(self.offer.set_problem, Topic.GUARD))
        self.guarding = Guarding(pins, cgroups, hierarchy, self.self_test)
        self.metrics.can_guard.set_function(lambda: not self.self_test.problem)
        self.metrics.slots_offered.set_function(lambda: not self.offer.problem)

    def _make_sharing(self) -> None:
        """Make the parts that serve time shares."""
        settings = self.settings
        self.gate = Gate(settings.state)
        pods = NodePods(
            managed=lambda: self.agent.managed,
            complete=lambda: self.agent.synced.is_set(),  # noqa: PLW0108 - the agent comes later
            servers=lambda: self.sockets.servers,
        )
        gate = NodeGate(self.gate, slots=lambda: self.owners.gated)
        self.usage = NvmlUsageReader(self._note_asker) if settings.simulated is None else None
        self.sharing = Sharing(settings, pods, gate, self.inventory, self.publisher, self.metrics, self.usage)
        self.metrics.shares.source = self.sharing.figures

    def _make_agent(self, kube: Kube) -> None:
        settings = self.settings
        self.tools = Tools(
            self.inventory,
            self.guarding,
            Scans(self.scanner, self.searches),
            Reports(self.publisher, self.metrics, self.pod_events),
            self.sharing,
            lambda uid: self.owners.created_with(uid),  # noqa: PLW0108 - the owners come later
        )
        trusts = functools.partial(
            known_pods.is_trusted, namespaces=settings.system_namespaces, labels=settings.system_labels
        )
        self.agent = Agent(
            settings.node, kube, self.tools, self.sockets, trusted_names=settings.system_holders, trusts=trusts
        )

    def _make_parts_with_pods(self) -> None:
        """Make the parts that use the agent's pods, or bring it new ones."""
        settings = self.settings
        simulated = settings.simulated is not None
        self.samples = Samples(
            settings.node, self.inventory, self.agent.managed, self.sharing.answer, simulated=simulated
        )
        self.second_owners = SecondOwners(
            self.inventory,
            functools.partial(PodResources(settings.pod_resources_socket).others, settings.resource),
            self.publisher,
            self.metrics,
            settings.inventory_seconds,
        )
        self.audit = Audit(
            self.inventory,
            self.tools.scans,
            self.agent,
            self.tools.reports,
            settings.audit_seconds,
            begun=(self.agent.ready, self.agent.synced),
            others=self._ask_others,
        )
        peaks = self.usage and PeaksOfVendors(
            self.usage, self.registry.peaks, lambda gpu: self.registry.seen[gpu].vendor
        )
        reader = UseReader(self.sharing.turns_so_far, peaks)
        self.use_classes = UseClasses(
            self.agent.managed, self.inventory, reader, settings.open_seconds, settings.rest_seconds
        )
        self.owners = SlotOwners(settings, lambda: self.agent.pods, self.publisher.fetch)
        service = Service(settings, lambda: self.inventory.gpus, self.agent, self.owners, self.gate)
        self.plugin = DevicePlugin(settings, service)
        self.status = StatusServer(
            settings.pod_ip,
            settings.port,
            alive=supervision.alive,
            ready=self.not_ready,
            metrics=self.metrics.text if settings.metrics else None,
        )

    async def _answer(self, uid: str, what: str) -> Mapping[str, Any]:
        return await self.samples.answer(uid, what)

    def _put(self, uid: str, peer: Peer) -> str:
        try:
            self.agent.put(uid, peer)
        except Refused as error:
            return str(error)
        return ""

    def _of_first(self, process: ProcessId, uid: str) -> bool:
        pod = self.agent.managed.get(uid)
        return origin.of_first(process, uid, pod.guard.group if pod and pod.guard else None)

    def _note_asker(self, pid: int) -> None:
        """Note the pid of the helper that asks the driver for GPU use by process: it has the GPUs open itself."""
        self.asker = pid

    async def _ask_others(self) -> None:
        """Find out which GPUs other plugins have given away, where there is a kubelet to ask."""
        if self.settings.pod_resources_socket.is_socket():
            await self.second_owners.once()

    def _helpers(self) -> frozenset[int]:
        return self.registry.helpers() | {self.asker}

    def not_ready(self) -> str:
        """Return why this node can't serve now, in plain words; empty if it can."""
        if not self.agent.ready.is_set():
            return "The pods of earlier processes are not guarded yet."
        if not self.agent.synced.is_set():
            return "The pods of this node are not known yet."
        return self.offer.fault or self.plugin.not_ready()

    async def run(self) -> None:
        """Run until the process is asked to stop. Nothing is touched before an earlier plugin has ended."""
        async with hold_lock(self.settings.lock):
            await self._run()

    async def _run(self) -> None:
        await asyncio.to_thread(self.gate.install)
        if self.gate.problem:
            _log.warning("Time shares are not enforced on this node: %s.", self.gate.problem)
        await self.inventory.begin()
        await self._ask_others()  # a GPU is given away only when its owner is known
        await self.self_test.once()
        try:
            await supervision.supervise(
                {
                    "status": self.status.run(),
                    "agent": self.agent.run(),
                    "sharing": self.sharing.run(),
                    "inventory": self.inventory.run(),
                    "use of the node": self.host_uses.run(),
                    "audit": self.audit.run(),
                    "use": self.use_classes.run(),
                    "owners": self.second_owners.run(),
                    "guarding": self.self_test.run(),
                    "kubelet": self._serve_kubelet(),
                    "slots": self._watch_slots(),
                }
            )
        finally:
            await self.sharing.close()
            await self.sockets.close()
            await self.recorder.close()
            self.scanner.close()
            self.inventory.close()

    async def _serve_kubelet(self) -> None:
        await self.agent.ready.wait()
        await self.plugin.serve()

    async def _watch_slots(self) -> None:
        if not await self._heard_soon() and self.sharing.remembers:
            _log.warning("The API server is away: time shares are served as they were last.")
            await self._serve_slots(self.owners.known.values())
            await self.sharing.begin()
        await self.agent.synced.wait()
        await self._serve_slots(self.owners.known.values())
        if any(pod.holding.has and not self.sharing.knows(uid) for uid, pod in self.agent.managed.items()):
            with contextlib.suppress(Unresolved, TimeoutError):  # the record was lost, and the kubelet has one
                async with asyncio.timeout(LEARN):
                    await self._serve_slots((await self.owners.reconcile()).learned)
        await self.sharing.begin()
        await self.owners.watch(self._compared)

    async def _heard_soon(self) -> bool:
        await self.agent.ready.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UNHEARD):
                await self.agent.synced.wait()
        return self.agent.synced.is_set()

    async def _serve_slots(self, owners: Iterable[SlotOwner]) -> None:
        for owner in owners:
            if owner.pod.uid in self.agent.managed:
                try:
                    await self.sockets.serve(owner.slot, owner.pod.uid)
                    await self.sharing.serve(owner.slot, owner.pod.uid)
                except OSError as error:
                    _log.warning("Pod %s cannot be served in %s: %s", owner.pod, owner.slot, error)

    async def _compared(self, result: Reconciled) -> None:
        await self._serve_slots(result.learned)
        for pod, container in result.unguarded:
            self.agent.unguarded(pod, container)
        for owner in result.orphaned:
            self.metrics.orphans.labels("slot").inc()
            if owner.pod.uid not in self.agent.managed:
                await self.sockets.forget(owner.pod.uid)
        self.metrics.stuck.set(len(result.stuck))
        if result.devices:
            self.agent.wake_all()


async def serve(settings: Settings) -> None:
    """Run the node plugin until the process is asked to stop."""
    async with Kube(credentials.load(settings.kubeconfig), user_agent="jupyter-gpu-node") as kube:
        await Plugin(settings, kube).run()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_node", description="The node plugin.")
    parser.add_argument("--settings", type=Path, default=None, help="JSON file; without one every default holds")
    arguments = parser.parse_args(words)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        settings = settings_module.load(arguments.settings, os.environ)
        gc.freeze()  # a search for garbage in all imported modules would take 30 ms, in a resize
        asyncio.run(serve(settings))
    except (SettingsError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
