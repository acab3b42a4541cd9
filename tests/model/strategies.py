"""Any valid value of the model, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import MAX_COMPUTE, NVIDIA, Device, DrainingShare, Gpu, GpuShare, Holder
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.parking import (
    Obstacle,
    ParkCause,
    ParkedMemory,
    ParkedShare,
    ParkOrder,
    RestingShare,
    UnparkableShare,
)
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.quantity import MAX_BYTES
from jupyter_gpu.model.service import (
    MAX_WORKERS,
    Z85,
    Peer,
    Relation,
    Service,
    UnhealthyGpu,
    WorkerIdentity,
    WorkerPart,
    WorkerService,
    WorkerState,
    WorkerStatus,
    WorkerStatuses,
)
from jupyter_gpu.model.strict import MAX_GENERATION, MAX_TIME
from jupyter_gpu.model.view import Condition, GpuState, GpuUser, Mode, PodGpu, View, steps

# Bidirectional controls and line separators are refused with the control characters.
SHOWN = st.characters(
    exclude_categories=("Cc", "Cs"),
    exclude_characters="\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
)


def names(most: int) -> st.SearchStrategy[str]:
    """Text of 1 … ``most`` characters that may stand in a line."""
    return st.text(SHOWN, min_size=1, max_size=min(most, 12))


generations = st.integers(0, MAX_GENERATION)
uuids = st.sampled_from([f"GPU-{i}" for i in range(6)]) | names(96)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(SHOWN)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(SHOWN), inner, max_size=3),
    max_leaves=6,
)


def extras(known: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a newer version."""
    return st.dictionaries(st.text(SHOWN).filter(lambda key: key not in known), json_values, max_size=2)


memories = st.just(0) | st.integers(1, MAX_BYTES)
timed = st.builds(GpuShare, uuids, st.integers(1, 1000), memories)
guests = st.builds(GpuShare, uuids, st.just(0), st.integers(1, MAX_BYTES))
shares = timed | guests
holders = st.builds(Holder, st.integers(0, 2**31 - 1), names(256), st.booleans())
draining = st.builds(
    lambda share, found: DrainingShare(share.uuid, share.milli, found, share.memory),
    shares,
    st.lists(holders, max_size=3).map(tuple),
)
devices = st.builds(Device, st.integers(0, 2**12 - 1), st.integers(0, 2**20 - 1))
gpus = st.builds(
    Gpu,
    uuid=uuids,
    index=st.integers(0, 4095),
    model=names(128),
    memory=st.integers(0, MAX_BYTES),
    device=st.none() | devices,
    path=st.just("") | names(512),
    healthy=st.booleans(),
    health=st.just("") | names(512),
    numa=st.none() | st.integers(0, 1023),
    island=st.none() | names(96),
    switch=st.none() | names(96),
    fabric=st.none() | names(96),
    simulated=st.booleans(),
    vendor=st.sampled_from([NVIDIA, "amd"]) | names(32),
    slow=st.booleans(),
    gate=st.booleans(),
    compute=st.none() | st.integers(1, MAX_COMPUTE),
    extra=extras((*Gpu.__slots__, "milli", "state", "users")),
)


def distinct(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """A few shares, each of another GPU."""
    return st.lists(items, max_size=4, unique_by=lambda item: item.uuid).map(tuple)


inventories = st.lists(
    gpus, max_size=4, unique_by=(lambda g: g.uuid, lambda g: g.index, lambda g: g.device or object())
).map(tuple)


@st.composite
def _wishes(draw: st.DrawFn) -> Wish:
    each = draw(st.none() | st.integers(1, 1000))
    count = draw(st.integers(0, 256 if each else 255_000))
    milli = count * (each or 1)
    return Wish(
        milli=milli,
        each=each,
        memory=draw(st.none() | st.integers(1, MAX_BYTES)),
        model=draw(st.lists(names(128), max_size=3).map(tuple)),
        vendor=draw(st.none() | names(32)),
        topology=draw(st.sampled_from([None, "any", "island", "switch"])),
        placement=draw(st.sampled_from([None, "local", "any"])),
        priority=draw(st.none() | st.integers(0, 9)),
        lendable=draw(st.none() | st.booleans()),
        base=draw(st.none() | st.integers(0, count - 1).map(lambda less: less * (each or 1))) if count else None,
        set=draw(st.none() | st.integers(1, 256).map(lambda shares: shares * (each or 1000))),
    )


wishes = _wishes()
times = st.none() | st.integers(0, MAX_TIME)
requested = st.builds(Requested, generations, wishes, extras(Requested.KNOWN), times)
reasons = st.none() | st.sampled_from(Reason)


def _pod_limits() -> st.SearchStrategy[PodLimit]:
    from .limits.strategies import pod_limits

    return pod_limits


park_orders = st.builds(ParkOrder, uuids, st.sampled_from(ParkCause), times)
parked = st.builds(
    lambda share, bundle, bytes_, since, needed, back, kept: ParkedShare(
        share.uuid, share.milli, bundle, bytes_, since, needed, back, kept, share.memory
    ),
    shares,
    names(64),
    st.integers(0, MAX_BYTES),
    st.integers(0, MAX_TIME),
    st.booleans(),
    st.none() | st.integers(0, 10**6),
    st.booleans(),
)
resting = st.builds(RestingShare, uuids, names(64), st.integers(0, MAX_TIME), st.integers(0, MAX_BYTES))
unparkable = st.builds(
    UnparkableShare,
    uuids,
    st.sampled_from(Obstacle).map(str) | names(32),
    st.integers(0, MAX_TIME),
    st.none() | st.integers(0, MAX_BYTES),
    st.lists(holders, max_size=2).map(tuple),
)

allocated = st.builds(
    Allocated,
    observed_generation=generations,
    shares=distinct(shares),
    reason=reasons,
    message=st.just("") | names(1024),
    ticket=st.none() | generations,
    position=st.none() | st.integers(1, 10**6),
    revision=generations,
    revoked=distinct(shares),
    limit=st.none() | st.deferred(_pod_limits),
    lendable=st.none() | st.booleans(),
    park=distinct(park_orders),
    extra=extras(
        (
            *("observedGeneration", "shares", "reason", "message", "ticket", "position", "revision", "revoked"),
            *("limit", "lendable", "park"),
        )
    ),
)

_key_parts = st.binary(min_size=32, max_size=32).map(
    lambda secret: [int.from_bytes(secret[start : start + 4], "big") for start in range(0, 32, 4)]
)
public_keys = _key_parts.map(
    lambda parts: "".join(Z85[part // 85**place % 85] for part in parts for place in range(4, -1, -1))
)
worker_ids = st.integers(1, 10**9 - 1).map(lambda number: f"w{number}")
ports = st.integers(1, 65535)
peers = st.builds(Peer, public_keys, ports) | st.builds(
    Peer, keys=st.dictionaries(worker_ids, public_keys, max_size=MAX_WORKERS).map(lambda keys: tuple(keys.items()))
)
_parts = st.builds(
    WorkerPart,
    id=worker_ids,
    node=names(253),
    milli=st.integers(0, 1_000_000),
    relation=st.sampled_from(Relation),
    pod=st.just("") | names(253),
    uid=st.just("") | names(128),
    address=st.just("") | st.ip_addresses().map(str),
    port=st.none() | ports,
    key=st.just("") | public_keys,
    draining=st.lists(draining, max_size=2).map(tuple),
    attached=distinct(shares),
    unhealthy=st.lists(st.builds(UnhealthyGpu, uuids, names(512)), max_size=2, unique_by=lambda gpu: gpu.uuid).map(
        tuple
    ),
    idle_since=times,
    revision=generations,
    extra=extras(
        (
            *("id", "node", "milli", "relation", "pod", "uid", "address", "port", "key", "attached"),
            *("idleSince", "revision", "draining", "unhealthy"),
        )
    ),
)
gpu_kinds = st.builds(GpuKind, names(128), generations, st.just(NVIDIA) | names(32), st.booleans())
_workers = st.lists(_parts, max_size=4, unique_by=(lambda part: part.id, lambda part: part.uid or object())).map(tuple)
services = st.builds(
    Service,
    generations,
    _workers,
    st.integers(0, 10**6),
    st.lists(gpu_kinds, max_size=3).map(tuple),
    extras(("generation", "workers", "elsewhere", "kinds")),
)
worker_services = st.builds(
    WorkerService,
    name=names(253),
    uid=names(128),
    key=st.just("") | public_keys,
    revision=generations,
    extra=extras(("notebook", "revision")),
)
worker_identities = st.builds(WorkerIdentity, names(128), worker_ids, extras(("notebook", "id")))
worker_statuses = st.dictionaries(
    worker_ids,
    st.builds(WorkerStatus, st.sampled_from(WorkerState), st.just("") | names(1024), st.integers(0, 10**6), times),
    max_size=MAX_WORKERS,
).map(WorkerStatuses)

attached = st.builds(
    Attached,
    observed_generation=generations,
    shares=distinct(shares),
    draining=distinct(draining),
    reason=reasons,
    revision=generations,
    peer=st.none() | peers,
    parked=st.lists(parked, max_size=3, unique_by=lambda item: (item.uuid, item.bundle)).map(tuple),
    resting=distinct(resting),
    unparkable=distinct(unparkable),
    extra=extras(
        (
            *("observedGeneration", "shares", "draining", "reason", "revision", "open", "rests", "lacks", "peer"),
            *("parked", "resting", "unparkable"),
        )
    ),
)

users = st.builds(
    GpuUser,
    st.integers(0, 2**31 - 1),
    names(256),
    st.booleans(),
    st.none() | names(256),
    st.none() | names(4096),
    st.none() | names(4096),
)
parked_memories = st.builds(
    ParkedMemory, st.integers(0, MAX_BYTES), st.integers(0, MAX_TIME), st.none() | st.integers(0, 10**6)
)
# What is parked or comes back has memory in the host, what attaches has none.
_states = st.sampled_from(GpuState).flatmap(
    lambda state: st.tuples(
        st.just(state),
        parked_memories
        if state in (GpuState.PARKED, GpuState.RETURNING)
        else st.none()
        if state is GpuState.ATTACHING
        else st.none() | parked_memories,
    )
)
pod_gpus = st.builds(
    lambda gpu, milli, state, users, **more: PodGpu(gpu, milli, state[0], users, parked=state[1], **more),
    gpus,
    st.integers(0, 1000),
    _states,
    st.lists(users, max_size=3).map(tuple),
    strangers=st.just(()),
    idle_since=st.none() | st.integers(0, MAX_TIME),
    keeps=st.just(0) | generations,
)
_pod_workers = st.builds(
    PodWorker,
    worker_ids,
    names(253),
    st.sampled_from(Relation),
    st.sampled_from(Stage),
    st.integers(0, 4).map(lambda n: n * 500),
    distinct(shares),
    st.just("") | names(1024),
    st.none() | st.integers(0, MAX_TIME),
    st.none() | generations,
    st.none() | generations,
    kinds=st.just(()),
    health=st.just(()),
)


def _with_health(worker: PodWorker) -> st.SearchStrategy[PodWorker]:
    count = len(worker.gpus)
    some = st.lists(st.just("") | names(512), min_size=count, max_size=count).filter(any).map(tuple)
    return st.just(worker) | some.map(lambda found: worker._replace(health=found)) if count else st.just(worker)


def _with_kinds(worker: PodWorker) -> st.SearchStrategy[PodWorker]:
    count = len(worker.gpus)
    known = st.lists(gpu_kinds, min_size=count, max_size=count).map(lambda found: worker._replace(kinds=tuple(found)))
    return st.just(worker) | known


pod_workers = _pod_workers.flatmap(_with_kinds).flatmap(_with_health)
views = st.builds(
    View,
    instance=names(64),
    version=generations,
    mode=st.sampled_from(Mode),
    simulated=st.booleans(),
    backend=names(32),
    total=st.integers(0, 16).map(lambda n: n * 1000),
    limit=st.integers(0, 16_000),
    steps=st.integers(0, 16_000).map(lambda limit: steps(limit, (250, 500))),
    requested=st.none() | requested,
    allocated=st.none() | allocated,
    attached=st.none() | attached,
    gpus=st.lists(pod_gpus, max_size=3).map(tuple),
    conditions=st.lists(st.builds(Condition, names(64), names(1024)), max_size=2).map(tuple),
    workers=st.just(()) | st.lists(pod_workers, max_size=3).map(tuple),
    elsewhere=st.none() | st.integers(0, 16_000),
    kinds=st.lists(gpu_kinds, max_size=3).map(tuple),
    lendable=st.none() | st.booleans(),
    kinds_elsewhere=st.lists(gpu_kinds, max_size=3).map(tuple),
)
