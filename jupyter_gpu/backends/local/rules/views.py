"""The view that a pod's user sees, made from the state of the pod; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jupyter_gpu.backends.local.guard import PodGuard
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.scans.scan_result import ScanResult
from jupyter_gpu.backends.local.settings import Settings
from jupyter_gpu.backends.local.site.rules.apart import Surroundings, apart
from jupyter_gpu.backends.local.site.rules.site_limit import SiteLimit
from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.cards import cards
from jupyter_gpu.model.gpu import total as total_of
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.stranger import Stranger
from jupyter_gpu.model.view import Condition, Mode, View, steps
from jupyter_gpu_node.gpus.registry import Registry

from . import conditions

MAX_REPAIRS = 4
"""Most repairs shown at a time."""


class ShareTroubles(NamedTuple):
    """The problems with time shares."""

    not_enforced: str = ""
    """Reason this server cannot share GPU time."""
    not_served: str = ""
    """Reason programs wait for GPUs that the pod has."""
    notice: str = ""
    """Reason the sharing rules that were set for this machine are not used."""
    revoked: tuple[tuple[str, str], ...] = ()
    """GPU and reason of each share that was taken away since the last wish."""


class Troubles(NamedTuple):
    """The problems with the records and the shares."""

    problem: str = ""
    """Reason the state directory cannot be used now."""
    unreadable: int = 0
    """Number of records of living pods that cannot be read."""
    repairs: tuple[str, ...] = ()
    """Repairs since the last wish, in words."""
    shares: ShareTroubles = ShareTroubles()
    limits: str = ""
    """Reason the limits of the machine's users can't be used as they are."""


class Visibility(NamedTuple):
    """The limits of what the server can see and may use."""

    around: Surroundings | None = None
    """Surroundings that the server runs in."""
    elsewhere: frozenset[str] = frozenset()
    """Uuids of GPUs that are used by servers with records of their own."""
    unknown_users: tuple[int, ...] = ()
    """Indices of the GPUs whose users cannot be found out."""
    site: SiteLimit | None = None
    """The site's limit on the GPUs that the server may use."""


class KnownState(NamedTuple):
    """All that is known of a pod at one moment."""

    record: Record
    registry: Registry
    guard: PodGuard | None
    """None before the start."""
    used: ScanResult
    """Holders of the pod's GPUs at the last scan."""
    strangers: Mapping[str, Sequence[Stranger]]
    """Processes that use GPUs without having been given them, by uuid."""
    troubles: Troubles
    visibility: Visibility
    kinds: tuple[GpuKind, ...] = ()
    """Kinds of the GPUs that can be decided about."""


def compose(version: int, state: KnownState, settings: Settings) -> View:
    """Compose the view of this moment."""
    record, registry, guard = state.record, state.registry, state.guard
    total = len(registry.gpus) * MILLI_PER_GPU
    of_user = record.allocated.limit if record.allocated else None
    own = (settings.limit, of_user.milli if of_user else None)
    limit = min([total, *(milli for milli in own if milli is not None)])
    return View(
        instance=record.uid,
        version=version,
        mode=guard.mode if guard else Mode.SOFT,
        simulated=bool(settings.simulated_gpus),
        backend="local",
        total=total,
        limit=limit,
        steps=steps(limit, settings.fractions, state.kinds),
        requested=record.requested,
        allocated=record.allocated,
        attached=record.attached,
        gpus=cards(record.allocated, record.attached, registry.seen, state.used.holders, state.strangers),
        conditions=(
            *_guard_conditions(guard, settings),
            *_gpu_conditions(registry, settings, state.visibility),
            *_wait_conditions(record, registry),
            *_share_conditions(record, state.troubles.shares),
            *_server_conditions(record, registry),
            *_record_conditions(state.troubles),
            *_limit_conditions(record, state.troubles),
            *visibility_conditions(registry, state.visibility),
        ),
        kinds=state.kinds,
    )


def _guard_conditions(guard: PodGuard | None, settings: Settings) -> Iterator[Condition]:
    if guard and guard.mode is Mode.SOFT:
        yield conditions.soft(guard.why, simulated=bool(settings.simulated_gpus))
    elif guard and guard.why:
        yield conditions.nested(guard.why)
    if guard and guard.problem:
        yield conditions.rules_failed(guard.problem)


def _gpu_conditions(registry: Registry, settings: Settings, visibility: Visibility) -> Iterator[Condition]:
    if not registry.known:
        yield conditions.looking()
    elif registry.failed:
        yield conditions.inventory_failed(registry.note)
    elif not registry.gpus:
        yield conditions.no_gpu(registry.note)
    elif settings.simulated_gpus:
        yield conditions.simulated(len(registry.gpus))
    if visibility.unknown_users:
        yield conditions.users_unknown(_named(visibility.unknown_users))
    site = visibility.site
    if site and site.value is not None and registry.known and (what := site.explain(registry.all)):
        yield conditions.site_limit(site.value, what)


def _wait_conditions(record: Record, registry: Registry) -> Iterator[Condition]:
    """Yield a condition if the server waits for GPUs while others do not work: these have no card of their own."""
    allocated = record.allocated
    if not allocated or allocated.reason not in (Reason.PARTIAL, Reason.DEFERRED):
        return
    mine = {share.uuid for share in allocated.shares}
    broken = [gpu for gpu in registry.gpus if not gpu.healthy and gpu.uuid not in mine]
    if broken:
        yield conditions.out_of_order([(gpu.index, gpu.health or "no reason is known") for gpu in broken])


def visibility_conditions(registry: Registry, visibility: Visibility) -> Iterator[Condition]:
    """Yield a condition if other servers might hand out the same GPUs, except plain files beside the records."""
    around = visibility.around
    if around is None or not any(gpu.device or not gpu.simulated for gpu in registry.gpus):
        return
    others = sorted(gpu.index for uuid in visibility.elsewhere if (gpu := registry.seen.get(uuid)))
    why = apart(around)
    if others:
        yield conditions.elsewhere(around.path, f"{_named(others)} {'is' if len(others) == 1 else 'are'}")
    elif why:
        yield conditions.apart(around.path, why.value)
    if around.contained and not why and not all(gpu.simulated for gpu in registry.gpus):
        yield conditions.contained()


def _named(indices: Sequence[int]) -> str:
    return f"GPU{'s' if len(indices) > 1 else ''} {', '.join(map(str, sorted(indices)))}"


def _share_conditions(record: Record, troubles: ShareTroubles) -> Iterator[Condition]:
    shares = record.allocated.shares if record.allocated else ()
    if troubles.not_enforced and any(not share.exclusive for share in shares):
        yield conditions.share_not_enforced(troubles.not_enforced)
    if troubles.not_served:
        yield conditions.share_server_missing(troubles.not_served)
    if troubles.notice:
        yield conditions.share_notice(troubles.notice)
    for gpu, why in troubles.revoked:
        yield conditions.share_taken_away(gpu, why)


def _server_conditions(record: Record, registry: Registry) -> Iterator[Condition]:
    """Yield a condition if the server's own process keeps GPUs from being given back."""
    held = {
        registry.seen[item.uuid].index: holder
        for item in (record.attached.draining if record.attached else ())
        for holder in item.holders
        if holder.pid == record.server.pid and item.uuid in registry.seen
    }
    if held:
        yield conditions.held_by_server(tuple(held), next(iter(held.values())).command, record.server.pid)


def _limit_conditions(record: Record, troubles: Troubles) -> Iterator[Condition]:
    if troubles.limits:
        yield conditions.limits_unusable(troubles.limits)
    allocated = record.allocated
    if allocated and allocated.limit:
        from jupyter_gpu.model.limit_words import lowered_condition  # most machines have no limits

        if found := lowered_condition(allocated.limit, total_of(allocated.shares)):
            yield found


def _record_conditions(troubles: Troubles) -> Iterator[Condition]:
    if troubles.problem:
        yield conditions.state_unavailable(troubles.problem)
    if troubles.unreadable:
        yield conditions.waiting_for_repair(troubles.unreadable)
    for repair in troubles.repairs[-MAX_REPAIRS:]:
        yield conditions.repaired(repair)
