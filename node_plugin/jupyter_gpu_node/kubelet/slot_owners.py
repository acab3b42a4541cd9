"""Owners of the slots: looked up before each start of a container, and at intervals for all slots."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_gpu_node.kubelet.rules import internal_checkpoint, slots
from jupyter_gpu_node.kubelet.rules.slots import (
    CheckpointEntry,
    KubeletReport,
    PodRef,
    Reconciled,
    SlotOwner,
    Unresolved,
)
from jupyter_gpu_node.settings import Settings

from . import slot_directories, slot_records
from .pod_resources import PodResources, PodResourcesError

Pods = Callable[[], Mapping[str, Mapping[str, Any]]]
"""Pods of this node by uid as the API server reported them last: ``lambda: reflector.objects``."""
Fetch = Callable[[str, str], Awaitable[Mapping[str, Any] | None]]
"""Function that reads the pod of a namespace and name at the API server; None if there is none. May raise."""

FETCH_SECONDS = 5.0
_log = logging.getLogger(__name__)


class SlotOwners:
    """The slots of this node and their owners."""

    def __init__(self, settings: Settings, pods: Pods, fetch: Fetch) -> None:
        self._settings = settings
        self._pods = pods
        self._fetch = fetch
        self._pod_resources = PodResources(settings.pod_resources_socket)
        self._record = slot_records.load(settings.record)
        self._writing = asyncio.Lock()

    @property
    def known(self) -> Mapping[str, SlotOwner]:
        """The known owners by slot; kept over restarts."""
        return self._record.owners

    @property
    def allocated(self) -> Mapping[str, float]:
        """Times of the kubelet's last allocation, by slot; kept over restarts."""
        return self._record.allocated

    @property
    def gated(self) -> frozenset[str]:
        """Slots whose container got the gate in front of the driver; kept over restarts."""
        return self._record.gated

    @property
    def devices(self) -> Mapping[str, frozenset[str]]:
        """The paths of GPUs, by slot, that its container was created with; kept over restarts."""
        return self._record.devices

    def created_with(self, uid: str) -> frozenset[str] | None:
        """Return the GPU paths that all containers of that pod with a slot were created with; None: not known."""
        own = [slot for slot, owner in self.known.items() if owner.pod.uid == uid]
        return slots.common([self.devices[slot] for slot in own if slot in self.devices])

    async def resolve(self, slot: str) -> tuple[PodRef, str]:
        """Return the pod and the container that have ``slot`` now; raises `Unresolved`.

        No single source is trusted: the kubelet names the pod, and the API server must know that very pod; if it
        can't be asked, our own record must say the same.
        """
        try:
            listed, held = await asyncio.gather(
                self._pod_resources.list(self._settings.resource), asyncio.to_thread(self._checkpoint)
            )
        except PodResourcesError as error:
            raise Unresolved(str(error)) from None
        found = slots.kubelet_report(slot, listed, held, self._pods())
        owner = await self._confirmed(found)
        await self._remember(lambda old: replace(old, owners={**old.owners, slot: owner}))
        return owner.pod, owner.container

    async def given(self, slot: str, *, gated: bool = False, devices: frozenset[str] = frozenset()) -> None:
        """Record that the kubelet gives ``slot`` away now. The pod is not known before the container starts.

        ``gated``: its container gets the gate; ``devices``: the paths at which it gets GPUs.

        Raises `Unresolved` if a container that runs has it: a kubelet that lost its checkpoint has
        forgotten that, and the two would share a directory.
        """
        if owner := slots.in_use(slot, self.known, self._pods()):
            raise Unresolved(
                f"The kubelet gives {slot} away, which the pod {owner.pod} still has. Create the pod anew."
            )
        now = time.time()

        def change(old: slot_records.SlotRecord) -> slot_records.SlotRecord:
            owners = {name: owner for name, owner in old.owners.items() if name != slot}
            gates = old.gated | {slot} if gated else old.gated - {slot}
            made = {**old.devices, slot: devices}
            return slot_records.SlotRecord(owners, {**old.allocated, slot: now}, gates, made)

        await self._remember(change)

    async def directory(self, slot: str) -> Path:
        """Make, and return, the host's directory that the container of that slot sees as ``/run/jupyter-gpu``."""
        path = self._settings.slot_directory(slot)
        await asyncio.to_thread(slot_directories.make, path)
        return path

    async def reconcile(self) -> Reconciled:
        """Compare all sources, and repair the record. Raises `Unresolved` if the kubelet is away.

        The pods must be known: an unknown one counts as gone if the kubelet does not report it either.
        """
        before = self.known
        try:
            listed = await self._pod_resources.list(self._settings.resource)
        except PodResourcesError as error:
            raise Unresolved(str(error)) from None
        held = await asyncio.to_thread(self._checkpoint)
        result = slots.reconcile(before, listed, held, self._pods(), self._settings.node)
        result = replace(result, devices=slots.unrecorded(result.owners, self.devices, held))
        if result.learned or result.orphaned or result.devices:
            merge = (before, result.orphaned, result.learned)

            def change(old: slot_records.SlotRecord) -> slot_records.SlotRecord:
                devices = {**result.devices, **old.devices}
                return replace(old, owners=_merged(old.owners, *merge), devices=devices)

            await self._remember(change)
        await asyncio.to_thread(self._tidy, replace(result, owners={**result.owners, **self.known}))
        return result

    async def watch(self, report: Callable[[Reconciled], Awaitable[None] | None]) -> None:
        """Reconcile repeatedly until cancelled; call ``report`` with each result. Begin once the pods are known.

        A container counts as unguarded if two comparisons in a row say so: one may fall in the middle of its start.
        """
        before: frozenset[tuple[PodRef, str]] = frozenset()
        while True:
            try:
                result = await self.reconcile()
            except Unresolved as error:
                _log.warning("Slots were not compared: %s", error)
            else:
                reported = report(replace(result, unguarded=tuple(item for item in result.unguarded if item in before)))
                if reported is not None:
                    await reported
                before = frozenset(result.unguarded)
            await asyncio.sleep(self._settings.reconcile_seconds)

    def _tidy(self, found: Reconciled) -> None:
        """Remove the directories of slots without owners. One that is given away just now is made again in time:
        before each start of a container.
        """
        try:
            present = [path.name for path in self._settings.slot_directory("any").parent.iterdir()]
        except OSError:
            return
        for slot in slots.abandoned(present, found, self.allocated, time.time()):
            path = self._settings.slot_directory(slot)
            with contextlib.suppress(OSError):  # not ours, or not empty
                slot_directories.remove(path)
                _log.info("The directory of %s was removed: no pod has it any more.", slot)

    def _checkpoint(self) -> tuple[CheckpointEntry, ...] | None:
        """Return the contents of the kubelet's checkpoint; None where it is lost or not understood."""
        try:
            with self._settings.kubelet_checkpoint.open("rb") as file:
                text = file.read(internal_checkpoint.MAX_BYTES + 1)
        except OSError:
            return None
        return internal_checkpoint.parse(text, self._settings.resource)

    async def _confirmed(self, found: KubeletReport) -> SlotOwner:
        pods = self._pods()
        if found.uid in pods:
            return slots.confirm(found, pods[found.uid], self._settings.node)
        if not found.name:
            raise Unresolved(f"The pod that has {found.slot} is not known yet; it is tried again by itself.")
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                pod = await self._fetch(found.namespace, found.name)
        except Exception as error:
            if slots.agrees(owner := self.known.get(found.slot), found):
                assert owner is not None
                return owner
            raise Unresolved(
                f"The API server could not be asked about the pod that has {found.slot}: {str(error) or 'no answer'}."
            ) from None
        return slots.confirm(found, pod, self._settings.node)

    async def _remember(self, change: Callable[[slot_records.SlotRecord], slot_records.SlotRecord]) -> None:
        """Change the record, and write it if it changed. A full disk must not keep containers from starting."""
        async with self._writing:
            new = change(self._record)
            if new == self._record:
                return
            self._record = new
            try:
                await asyncio.to_thread(slot_records.save, self._settings.record, new)
            except OSError as error:
                _log.warning("The record of slots could not be written: %s", error)


def _merged(
    owners: Mapping[str, SlotOwner],
    before: Mapping[str, SlotOwner],
    gone: Collection[SlotOwner],
    learned: Collection[SlotOwner],
) -> Mapping[str, SlotOwner]:
    """Return the outcome of a comparison that began with ``before``; what changed since then is newer, and stays."""
    same = {slot for slot in {*owners, *before} if owners.get(slot) == before.get(slot)}
    kept = {slot: owner for slot, owner in owners.items() if owner not in gone}
    return {**kept, **{owner.slot: owner for owner in learned if owner.slot in same or owner.slot not in owners}}
