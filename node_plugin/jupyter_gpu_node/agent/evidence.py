"""Evidence that keeps a pod from releasing a GPU, from one scan to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.holders.rules.rights import Rights, Suspect, holders
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.holders.searches import Searches
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.processes.rules.scan_budget import RARELY

from .pod import ManagedPod


@dataclass(frozen=True, slots=True)
class OpenEvidence:
    """Evidence that every GPU scanned for is open in a process that should not have it, and where that is visible.

    As long as one descriptor of each is still there, another scan cannot prove anything: the whole machine is scanned
    only now and then. The end of those processes is reported by `process_ends`.
    """

    scan: HolderScan
    shown: Mapping[str, tuple[Suspect, str]]
    """Suspect and path, by uuid."""
    at: float

    @classmethod
    def of(
        cls, pod: ManagedPod, scan: HolderScan, wanted: Mapping[str, Gpu], rights: Rights, now: float
    ) -> OpenEvidence | None:
        """Return the evidence; None: some GPU has no known holder, so it may be closed at any moment."""
        shown = {}
        for uuid in wanted:
            for suspect, _ in holders(scan.holders.get(uuid, ()), uuid, pod.releasing, rights):
                if path := scan.evidence.get((uuid, suspect.pid)):
                    shown[uuid] = (suspect, path)
        return cls(replace(scan, scanned=frozenset(wanted)), shown, now) if shown.keys() == wanted.keys() else None

    def stands(self, pod: ManagedPod, wanted: Mapping[str, Gpu], rights: Rights, now: float) -> bool:
        """Tell whether the evidence still holds and is recent. Makes some system calls that never wait."""
        targets = device_scan.targets(wanted.values())
        return (
            now - self.at < RARELY
            and self.shown.keys() == wanted.keys() == targets.keys()
            and all(holders((one,), uuid, pod.releasing, rights) for uuid, (one, _) in self.shown.items())
            and all(device_scan.still_shows(path, targets[uuid]) for uuid, (_, path) in self.shown.items())
        )


def search_over(
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
    found = {uuid: set(scan.holders.get(uuid, ())) for uuid in wanted}
    evidence, moving, unknown = dict(scan.evidence), set(scan.moving), set[str]()
    since = max((pod.missing[uuid] for uuid in wanted), default=0.0)

    def guilty(uuid: str, some: Iterable[Suspect]) -> bool:
        return bool(holders(some, uuid, pod.releasing, rights))

    for uid, suspects in scan.over.items():
        own = uid == pod.uid
        group = pod.guard.group if pod.guard and own else None
        seen = searches.ask(uid, gpus, frozenset(wanted), since, pod.wake.set, group)
        if seen is None or uid in seen.over:
            unknown.add(uid)
        if pod.settled or not own:
            over = seen.over.get(uid, ()) if seen else suspects if own else ()
            for uuid in wanted:
                found[uuid].update(over)
        if seen is None:
            continue
        evidence.update(seen.evidence)
        moving |= seen.moving
        for uuid in wanted:
            found[uuid].update(seen.holders.get(uuid, ()))
            if uid in seen.over or guilty(uuid, seen.holders.get(uuid, ())):
                pod.missing[uuid] = now  # it must be seen closed by another search
    held = frozenset(uuid for uuid, some in found.items() if guilty(uuid, some))
    whole = replace(
        scan,
        holders={uuid: tuple(sorted(some, key=lambda one: one.pid)) for uuid, some in found.items()},
        evidence=evidence,
        over={uid: some for uid, some in scan.over.items() if uid in unknown},
        moving=frozenset(moving),
    )
    return whole, held if unknown else frozenset(wanted)
