"""Scans that found pods with more processes and open files than one scan may read: a search goes on where it ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.holders.rules.rights import Rights, Suspect, holders
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.holders.searches import Searches

from .pod import ManagedPod


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
    since = max((pod.release.missing[uuid] for uuid in wanted), default=0.0)

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
                pod.release.missing[uuid] = now  # it must be seen closed by another search
    held = frozenset(uuid for uuid, some in found.items() if guilty(uuid, some))
    whole = replace(
        scan,
        holders={uuid: tuple(sorted(some, key=lambda one: one.pid)) for uuid, some in found.items()},
        evidence=evidence,
        over={uid: some for uid, some in scan.over.items() if uid in unknown},
        moving=frozenset(moving),
    )
    return whole, held if unknown else frozenset(wanted)
