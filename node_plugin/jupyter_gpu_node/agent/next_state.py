"""The next state of a pod: what it should have, what a scan must prove closed, and what is attached then. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached, Reason
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare, Holder
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.agent.rules import peers
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_node.agent.rules.use_class import reported
from jupyter_gpu_node.holders.rules.rights import Rights, holders
from jupyter_gpu_node.holders.scanner import HolderScan, inner_pid

from .pod import ManagedPod

NAMES_PAUSE = 5.0
"""Seconds between two writes if only the names of holders changed."""
_NOTHING = Attached(0)


def wanted(pod: ManagedPod) -> Allocated | None:
    """Return what the pod should have: what was decided; nothing once it has ended; what it has if unreadable."""
    view = pod.view
    if view is None or view.finished:
        return None
    if view.problem:
        known = pod.attached or _NOTHING
        granted = tuple(share for _, share in sorted(pod.granted.items()))
        shares = granted if pod.holdings_known else known.shares
        return Allocated(known.observed_generation, shares, revision=known.revision)
    return view.allocated


def to_prove_closed(pod: ManagedPod, allowed: Collection[str], inventory: Collection[str]) -> frozenset[str]:
    """Return the uuids that a scan must find closed: everything that the pod may have had and has no more."""
    known = pod.attached or _NOTHING
    had = {share.uuid for share in known.shares} | {item.uuid for item in known.draining} | pod.granted.keys()
    return frozenset(had if pod.holdings_known else had | set(inventory)) - frozenset(allowed)


def advance(
    pod: ManagedPod,
    shares: tuple[GpuShare, ...],
    scan: HolderScan,
    rights: Rights,
    *,
    claimed: Collection[str] = (),
    unhealthy: frozenset[str] = frozenset(),
) -> Attached | None:
    """Return what is attached and draining after a scan found ``scan``, with rules in force that allow ``shares``.

    ``claimed``: uuids that belong to other pods. None: there is nothing to say about this pod.
    """
    allocated = wanted(pod)
    found = found_holders(pod, scan, rights)
    allowed = frozenset(share.uuid for share in shares)
    known = pod.attached if pod.holdings_known else _with_unrecorded(pod, found, allowed | set(claimed))
    peer = peers.recorded(pod.said, known) if pod.view and not pod.view.finished else None
    if allocated is None and known is None and not pod.lacks and peer is None:
        return None
    held = {s.uuid for s in known.shares} | {d.uuid for d in known.draining} if known else set()
    held |= pod.granted.keys()
    after = plan(
        replace(allocated, shares=shares) if allocated else None,
        known,
        Observation(allowed | (held - scan.scanned), found),
        unhealthy,
    ).attached
    if allocated and shares != allocated.shares:  # not all of it is done
        after = replace(after, observed_generation=known.observed_generation if known else 0)
    if pod.waits_for_memory and after.reason is None:
        after = replace(after, reason=Reason.DRAINING)
    opened, rests = _reported_use(pod, shares)
    after = replace(after, open=opened, rests=rests, lacks=tuple(sorted(pod.lacks)), peer=peer)
    said = after.shares or after.draining or after.revision or after.lacks or after.peer or after.reason
    return after if known or said else None


def lacking(devices: Collection[str] | None, gpus: Iterable[Gpu]) -> frozenset[str]:
    """Return the uuids of ``gpus`` that a container with these devices can never use; ``devices`` None: not known."""
    if devices is None:
        return frozenset()
    return frozenset(gpu.uuid for gpu in gpus if gpu.path not in devices)


def _reported_use(pod: ManagedPod, shares: Iterable[GpuShare]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which of ``shares`` are open, and which of these rest: as observed, else as an earlier process wrote."""
    if pod.use.open is not None:
        return reported(shares, pod.use.open, pod.use.rests)
    recorded = pod.attached or _NOTHING
    return reported(shares, recorded.open, recorded.rests)


def _with_unrecorded(
    pod: ManagedPod, found: Mapping[str, tuple[Holder, ...]], rightful: Collection[str]
) -> Attached | None:
    """Return the record, with GPUs that the pod has open and no record names, because a step was cut off."""
    known = pod.attached
    names = {share.uuid for share in known.shares} | {item.uuid for item in known.draining} if known else set()
    own = (uuid for uuid, some in sorted(found.items()) if any(not holder.foreign for holder in some))
    more = tuple(DrainingShare(uuid, MILLI_PER_GPU) for uuid in own if uuid not in names and uuid not in rightful)
    if not more:
        return known
    return replace(known or _NOTHING, draining=((known or _NOTHING).draining + more))


def found_holders(pod: ManagedPod, scan: HolderScan, rights: Rights) -> dict[str, tuple[Holder, ...]]:
    """Return, by uuid, the processes that keep the pod from releasing it."""
    hidden = holders((one for one in scan.hidden if one.start >= pod.began), "", pod.releasing, Rights())
    found = {}
    for uuid in scan.scanned & scan.holders.keys():
        suspects = scan.holders[uuid]
        keeping = (*holders(suspects, uuid, pod.releasing, rights), *hidden)
        found[uuid] = tuple(
            Holder(0 if foreign else inner_pid(suspect.pid), suspect.command, foreign) for suspect, foreign in keeping
        )
    return found


def worth_writing(pod: ManagedPod, now: float) -> bool:
    """Tell whether to write to the API server. A change of holders' names alone waits."""
    attached, recorded = pod.attached, pod.record.attached
    if attached is None or attached == recorded:
        return False
    if recorded is None or _plain(attached) != _plain(recorded):
        return True
    return now - pod.record.written >= NAMES_PAUSE


def _plain(attached: Attached) -> Attached:
    return replace(attached, draining=tuple(item._replace(holders=()) for item in attached.draining))
