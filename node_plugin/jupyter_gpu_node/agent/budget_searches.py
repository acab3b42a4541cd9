"""Adds searches to a scan that met pods with more processes and open files than one scan may read.

A search goes on where the scan of such a pod ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.holders.rules.rights import Rights, Suspect, holders
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.holders.searches import Searches

from .pod import ManagedPod


def include_searches(
    searches: Searches,
    pod: ManagedPod,
    scan: HolderScan,
    wanted: Mapping[str, Gpu],
    gpus: Mapping[str, Gpu],
    rights: Rights,
    now: float,
) -> tuple[HolderScan, frozenset[str]]:
    """Return the scan with the searches' results for pods over their budget, and the uuids it proves anything about.

    A pod that has too much even for a search may have every GPU: the process at which the budget ended counts as a
    holder. If nothing is known of that pod yet, it stays unknown.
    """
    if not scan.over:
        return scan, frozenset(wanted)
    findings = _Findings(pod, scan, wanted, rights)
    since = max((pod.release.denied_since[uuid] for uuid in wanted), default=0.0)
    for uid, suspects in scan.over.items():
        group = pod.guard.group if pod.guard and uid == pod.uid else None
        found = searches.ask(uid, gpus, frozenset(wanted), since, pod.wake.set, group)
        findings.add(uid, suspects, found, now)
    return findings.result(), findings.proven


class _Findings:
    """The holders that a scan and the searches after it have found so far."""

    def __init__(self, pod: ManagedPod, scan: HolderScan, wanted: Mapping[str, Gpu], rights: Rights) -> None:
        self._pod = pod
        self._scan = scan
        self._rights = rights
        self._found = {uuid: set(scan.holders.get(uuid, ())) for uuid in wanted}
        self._evidence = dict(scan.evidence)
        self._moving = set(scan.moving)
        self._unknown = set[str]()
        """UIDs of pods of which it is not known what they have open."""

    @property
    def proven(self) -> frozenset[str]:
        """UUIDs that the result proves anything about: closed or open, or open only while some pod is unknown."""
        held = frozenset(uuid for uuid, some in self._found.items() if self._is_held(uuid, some))
        return held if self._unknown else frozenset(self._found)

    def add(self, uid: str, suspects: Iterable[Suspect], search: HolderScan | None, now: float) -> None:
        """Add the result of the search of one pod; None: there is none yet. ``suspects``: where its scan ended."""
        own = uid == self._pod.uid
        if search is None or uid in search.over:
            self._unknown.add(uid)
        if self._pod.holdings_known or not own:
            over = search.over.get(uid, ()) if search else suspects if own else ()
            for some in self._found.values():
                some.update(over)
        if search is None:
            return
        self._evidence.update(search.evidence)
        self._moving |= search.moving
        for uuid, some in self._found.items():
            some.update(search.holders.get(uuid, ()))
            if uid in search.over or self._is_held(uuid, search.holders.get(uuid, ())):
                self._pod.release.denied_since[uuid] = now  # it must be seen closed by another search

    def result(self) -> HolderScan:
        """Return the scan with all that was added."""
        return replace(
            self._scan,
            holders={uuid: tuple(sorted(some, key=lambda one: one.pid)) for uuid, some in self._found.items()},
            evidence=self._evidence,
            over={uid: some for uid, some in self._scan.over.items() if uid in self._unknown},
            moving=frozenset(self._moving),
        )

    def _is_held(self, uuid: str, some: Iterable[Suspect]) -> bool:
        """Tell whether any of these processes keeps the pod from releasing it."""
        return bool(holders(some, uuid, self._pod.releasing, self._rights))
