"""The audit: finds the processes that have GPUs open, every few seconds, and ends those that were not given them.

Rules guard ``open()``; a descriptor that is passed over a socket, or a process that left its control group, gets past
them. No pod is given a GPU that such a process may still have open.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.rules.pod_view import PodView
from jupyter_gpu_node.holders import killing
from jupyter_gpu_node.holders.rules.rights import HolderKind, Rights, Suspect, classify
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.processes import device_scan, proc

from .publisher import INTRUDER
from .tools import Reports, Scans

MAPPINGS_EVERY = 4
"""Memory mappings are read in one of so many scans: it takes most of the time, and few programs close what they map."""
INTRUDED = "Process {command} had GPU {uuid} open, which was not given to it. It was ended."
TOO_MUCH = (
    "Process {command} belongs to a pod with more processes and open files than can be searched. "
    "So it may have GPU {uuid} open, which was not given to it. It was ended."
)
HELD = "A process that was not given this GPU has it open: {command} (process {pid}). It was ended."

Finding = tuple[str, Suspect, HolderKind]
"""A GPU, a process that has it open, and the kind of that process."""
_log = logging.getLogger(__name__)


class PodRights(Protocol):
    """The pods of a node and their rights (`agent.Agent`)."""

    def rights(self) -> Rights:
        """Return which GPUs may be open where."""

    def view(self, uid: str) -> PodView | None:
        """Return a pod of this node; None if there is none."""


class Audit:
    """The audit of one node."""

    def __init__(
        self,
        inventory: Inventory,
        scans: Scans,
        pods: PodRights,
        reports: Reports,
        seconds: float,
        begun: Collection[asyncio.Event] = (),
        *,
        others: Callable[[], Awaitable[None]],
    ) -> None:
        """``begun``: events to wait for before the first scan, so that all rights are known. ``others``: finds out now
        which GPUs other plugins have given away.
        """
        self._inventory = inventory
        self._scans = scans
        self._pods = pods
        self._publisher, self._metrics = reports.publisher, reports.metrics
        self._seconds = seconds
        self._begun = begun
        self._others = others
        self._reported: set[tuple[int, int, str]] = set()
        self._over: dict[str, float] = {}
        """Pods that a scan could not search wholly, by uid, and when."""
        self.searched: dict[str, tuple[HolderScan, list[Finding]]] = {}
        """The last search of each pod and its findings, by uid, for as long as any of those processes is there."""
        self._count = 0

    async def run(self) -> None:
        """Run until cancelled, once all rights are known: before that every holder would look like an intruder."""
        for event in self._begun:
            await event.wait()
        while True:
            await asyncio.sleep(self._seconds or 3600)
            if self._seconds:
                await self.once()

    async def once(self) -> None:
        """Scan once, and act on the findings."""
        found = self._of_ours(await self._findings())
        if any(kind is HolderKind.INTRUDER and suspect.pod for _, suspect, kind in found):
            await self._others()  # it may have been given away since we asked last; then its users must not be ended
            found = self._of_ours(found)
        if any(kind is HolderKind.INTRUDER for _, _, kind in found):
            intruders = [(uuid, suspect) for uuid, suspect, kind in found if kind is HolderKind.INTRUDER]
            await asyncio.gather(*(killing.end(suspect) for suspect in {suspect for _, suspect in intruders}))
            self._publish(found)
            found = self._of_ours(await self._findings(mappings=True))
        self._publish(found)
        self._inventory.hold_back(
            {
                uuid: HELD.format(command=suspect.command, pid=suspect.pid)
                for uuid, suspect, kind in found
                if kind is HolderKind.INTRUDER
            }
        )
        self._reported &= {(suspect.pid, suspect.start, uuid) for uuid, suspect, _ in found}

    async def _findings(self, *, mappings: bool = False) -> list[Finding]:
        """Return which processes have GPUs open without a right. A right that held before or after the scan counts."""
        before = self._pods.rights()
        whole = mappings or bool(self._inventory.held_back) or self._count % MAPPINGS_EVERY == 0
        ours = {uuid: gpu for uuid, gpu in self._inventory.seen.items() if uuid not in self._inventory.not_ours}
        scan: HolderScan = await self._scans.scanner.scan(ours, mappings=whole)
        after = self._pods.rights()
        self._count += 1
        self._metrics.audits.inc()
        findings = [
            (uuid, suspect, max(classify(suspect, uuid, before), classify(suspect, uuid, after), key=_leniency))
            for uuid, suspects in scan.holders.items()
            for suspect in suspects
            if uuid in ours  # other callers may have had other GPUs scanned for at the same time
        ]
        self._search(scan)
        findings += (finding for _, some in self.searched.values() for finding in some if _is_alive(finding))
        return [finding for finding in findings if finding[2] is not HolderKind.RIGHTFUL]

    def _of_ours(self, found: list[Finding]) -> list[Finding]:
        """Leave out findings about GPUs that have turned out to have a second owner."""
        return [finding for finding in found if finding[0] not in self._inventory.not_ours]

    def _search(self, scan: HolderScan) -> None:
        """Search each pod that the scan could not search wholly; take up the result as soon as there is one."""
        now, seen = time.monotonic(), self._inventory.seen
        for uid in scan.over:
            self._over.setdefault(uid, now)
        for uid, since in list(self._over.items()):
            found = self._scans.searches.ask(uid, seen, frozenset(seen), since, lambda: None)
            if found:
                del self._over[uid]
                self.searched[uid] = (found, self._findings_of_search(uid, found))
        self.searched = {uid: one for uid, one in self.searched.items() if any(map(_is_alive, one[1]))}

    def _findings_of_search(self, uid: str, scan: HolderScan) -> list[Finding]:
        """Return the findings of a search. It may have taken long: only what is still open, without a right, counts.

        A pod with a slot that has more files open than a search can read counts as having every GPU open.
        """
        ours = (gpu for uuid, gpu in self._inventory.seen.items() if uuid not in self._inventory.not_ours)
        seen, findings = device_scan.targets(ours), list[Finding]()
        for uuid, suspects in scan.holders.items():
            for suspect in suspects:
                path = scan.evidence.get((uuid, suspect.pid))
                if uuid in seen and path and device_scan.still_shows(path, seen[uuid]):
                    findings.append((uuid, suspect, classify(suspect, uuid, self._pods.rights())))
        rights = self._pods.rights().pods
        if uid in rights:
            found = ((uuid, one) for uuid in seen.keys() - set(rights[uid] or ()) for one in scan.over.get(uid, ()))
            findings += ((uuid, one, HolderKind.INTRUDER) for uuid, one in found)
        return findings

    def _over_budget(self, suspect: Suspect) -> bool:
        return any(suspect in some for scan, _ in self.searched.values() for some in scan.over.values())

    def _publish(self, found: list[Finding]) -> None:
        for uuid, suspect, kind in found:
            if (suspect.pid, suspect.start, uuid) in self._reported:
                continue
            self._reported.add((suspect.pid, suspect.start, uuid))
            if kind is HolderKind.STRANGER:
                self._metrics.strangers.inc()
                _log.warning("Program %s (process %d) has GPU %s open.", suspect.command, suspect.pid, uuid)
                continue
            self._metrics.intruders.inc()
            _log.error("Process %d (%s) had GPU %s open and is ended.", suspect.pid, suspect.command, uuid)
            text = (TOO_MUCH if self._over_budget(suspect) else INTRUDED).format(command=suspect.command, uuid=uuid)
            view = self._pods.view(suspect.pod) if suspect.pod else None
            if view:
                self._publisher.about_pod(view.ref, INTRUDER, text)
            else:
                self._publisher.about_node(INTRUDER, text)


_ORDER: Mapping[HolderKind, int] = {HolderKind.INTRUDER: 0, HolderKind.STRANGER: 1, HolderKind.RIGHTFUL: 2}


def _is_alive(finding: Finding) -> bool:
    return proc.alive(finding[1].pid, finding[1].start)


def _leniency(kind: HolderKind) -> int:
    return _ORDER[kind]
