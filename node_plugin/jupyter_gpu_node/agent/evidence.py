"""Evidence that keeps a pod from releasing a GPU, from one scan to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.holders.rules.rights import ReleasingPod, Rights, Suspect, holders
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.processes.rules.scan_budget import RARELY


@dataclass(frozen=True, slots=True)
class OpenEvidence:
    """Evidence that every GPU scanned for is open in a process that should not have it, and where that is visible.

    As long as one descriptor of each GPU is still there, another scan could prove nothing: so the whole machine is
    scanned only at long intervals. `process_ends` reports the end of those processes.
    """

    scan: HolderScan
    shown: Mapping[str, tuple[Suspect, str]]
    """Suspect and path, by uuid."""
    at: float

    @classmethod
    def of(
        cls, pod: ReleasingPod, scan: HolderScan, wanted: Mapping[str, Gpu], rights: Rights, now: float
    ) -> OpenEvidence | None:
        """Return the evidence; None: some GPU has no known holder, so it may be closed at any moment."""
        shown = {}
        for uuid in wanted:
            for suspect, _ in holders(scan.holders.get(uuid, ()), uuid, pod, rights):
                if path := scan.evidence.get((uuid, suspect.pid)):
                    shown[uuid] = (suspect, path)
        return cls(replace(scan, scanned=frozenset(wanted)), shown, now) if shown.keys() == wanted.keys() else None

    def stands(self, pod: ReleasingPod, wanted: Mapping[str, Gpu], rights: Rights, now: float) -> bool:
        """Tell whether the evidence still holds and is recent. Makes some system calls that never wait."""
        targets = device_scan.targets(wanted.values())
        return (
            now - self.at < RARELY
            and self.shown.keys() == wanted.keys() == targets.keys()
            and all(holders((one,), uuid, pod, rights) for uuid, (one, _) in self.shown.items())
            and all(device_scan.still_shows(path, targets[uuid]) for uuid, (_, path) in self.shown.items())
        )
