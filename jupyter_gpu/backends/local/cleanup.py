"""The remains of pods whose server was killed, and the removal of pods of which nothing is left."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jupyter_gpu.common import faults
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.devices import cgroup

from .processes.pod_processes import PodProcesses
from .records.other_pods import OtherPod
from .records.store import StateStore
from .scans.holder_scan import Exemptions, Scope, Suspects, scan

_log = logging.getLogger(__name__)


def reap(
    store: StateStore,
    dead: Iterable[OtherPod],
    gpus: Mapping[str, Gpu],
    sharing: Mapping[str, Sequence[PodProcesses]],
    exemptions: Exemptions,
    groups: Path | None,
) -> tuple[frozenset[str], frozenset[int]]:
    """Remove the dead pods of which nothing is left, with their files where that is allowed.

    Returns their uids, and what is left: pids of the others, see `remains`, whose end is a reason to try again.
    ``groups``: where the group of a pod is that was killed before it recorded that; beside our own.
    """
    gone = []
    left: frozenset[int] = frozenset()
    for pod in dead:
        if pids := remains(pod, gpus, sharing, exemptions):
            left |= pids
        elif _remove_group(pod, groups):
            gone.append(pod)
    if gone:
        faults.point("reap:emptied")
        with store.locked() as session:
            for pod in gone:
                session.remove(pod.uid)
                _log.info("Pod %s ended without giving back what it had; that is free now.", pod.uid)
    return frozenset(pod.uid for pod in gone), left


def _remove_group(pod: OtherPod, groups: Path | None) -> bool:
    group = pod.processes.group
    if group is None and pod.owner == 0 and groups is not None:
        group = groups / cgroup.group_name(pod.uid)
    if group is None or os.geteuid() != 0:
        return True
    try:
        return cgroup.remove(group)
    except OSError as error:
        _log.warning("The control group %s of a dead pod can't be removed: %s", group, error)
        return False


def remains(
    dead: OtherPod, gpus: Mapping[str, Gpu], sharing: Mapping[str, Sequence[PodProcesses]], exemptions: Exemptions
) -> frozenset[int]:
    """Return the pids of what is left of a dead pod: its processes, and others that may have a GPU from it.

    ``gpus``: all that were ever seen. ``sharing``: by uuid, processes of other pods that have it. ``exemptions``:
    those of the machine; the record tells its own.
    """
    if left := dead.processes.pids():
        return left
    scope = Scope(
        pod=dead.processes,
        sharers=sharing,
        exemptions=replace(exemptions, outside=frozenset(dead.record.outside)),
        suspects=_suspects(dead),
    )
    found = scan((gpus[uuid] for uuid in dead.held if uuid in gpus), scope)
    return frozenset(holder.pid for holders in found.holders.values() for holder in holders)


def _suspects(dead: OtherPod) -> Suspects | None:
    if dead.processes.group:
        return Suspects(dead.record.server)
    # Without a group every other program of the machine would be suspect: only its user's are, unless we see into them.
    return None if dead.owner in (0, os.geteuid()) else Suspects(dead.record.server, dead.owner)
