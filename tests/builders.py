"""Worlds in one line: GPUs, pods and snapshots for tests.

GPUs are named by their index: ``uuid(0)`` is ``"GPU-0"``. Shares are written by index: ``[0, 1]`` is the whole of
GPUs 0 and 1, ``{2: 500}`` is half of GPU 2. Amounts are in milli in mappings and in GPUs (``2``, ``0.5``, ``"500m"``)
where a person would ask for them::

    world(gpus=4, pods=[pod("a", wants=2, has=[0, 1]), pod("b", wants=3, has=[2, 3], ticket=1)])

In a cluster of several nodes the GPUs of the second start with 10, of the third with 20, and so on::

    cluster({"n1": 4, "n2": 2}, [pod("a", wants=2, has=[10, 11], node="n2"), new("b", wants=1)])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import Device, DrainingShare, Gpu, GpuShare, Holder
from jupyter_gpu.model.quantity import parse_milli
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts

NODE = "node"
GIB = 1024**3

Shares = Mapping[int, int] | Iterable[int]
"""``{index: milli}``, or indices of whole GPUs."""


def uuid(index: int) -> str:
    """Return the uuid of the GPU with this index."""
    return f"GPU-{index}"


def gpu(index: int, **fields: Any) -> Gpu:
    """Return a GPU with 80 GiB and a device 4:40+index; ``fields`` are those of :class:`Gpu`."""
    usual: dict[str, Any] = {
        "uuid": uuid(index),
        "index": index,
        "model": "Simulated GPU",
        "memory": 80 * GIB,
        "device": Device(4, 40 + index),
        "path": f"/dev/tty{40 + index}",
    }
    return Gpu(**{**usual, **fields})


def inventory(
    count: int,
    *,
    island: int | None = None,
    switch: int | None = None,
    unhealthy: Iterable[int] = (),
    models: Sequence[str] = (),
    memory: Sequence[int] = (),
) -> tuple[Gpu, ...]:
    """Return ``count`` GPUs of one node.

    ``island`` and ``switch``: how many neighbours are joined into one; ``models`` and ``memory`` (GiB) go round.
    """
    broken = frozenset(unhealthy)
    return tuple(
        gpu(
            index,
            healthy=index not in broken,
            health="broken by a test" if index in broken else "",
            island=None if island is None else f"island-{index // island}",
            switch=None if switch is None else f"switch-{index // switch}",
            model=models[index % len(models)] if models else "Simulated GPU",
            memory=(memory[index % len(memory)] if memory else 80) * GIB,
        )
        for index in range(count)
    )


def shares(has: Shares) -> tuple[GpuShare, ...]:
    """Return shares in the order given, which is oldest first."""
    amounts = has if isinstance(has, Mapping) else dict.fromkeys(has, 1000)
    return tuple(GpuShare(uuid(index), milli) for index, milli in amounts.items())


def wish(amount: object, **fields: Any) -> Wish:
    """Return a wish, such as ``wish(2, topology="island")``; the amount is in GPUs."""
    return Wish(parse_milli(amount), **fields)


def requested(wants: object, generation: int = 1, **fields: Any) -> Requested:
    """Return a recorded wish; ``wants`` is an amount in GPUs or a :class:`Wish`."""
    return Requested(generation, wants if isinstance(wants, Wish) else wish(wants, **fields))


def allocated(has: Shares = (), generation: int = 1, **fields: Any) -> Allocated:
    """Return a decision."""
    return Allocated(generation, shares(has), **fields)


def attached(
    has: Shares = (), draining: Shares = (), generation: int = 1, holders: Sequence[Holder] = (), **fields: Any
) -> Attached:
    """Return what can be opened, and what is being closed; each draining share has the same ``holders``."""
    leaving = tuple(DrainingShare(share.uuid, share.milli, tuple(holders)) for share in shares(draining))
    return Attached(generation, shares(has), leaving, **fields)


def pod(
    uid: str,
    wants: object | None = None,
    has: Shares | None = None,
    *,
    attaches: Shares | None = None,
    draining: Shares = (),
    ticket: int | None = None,
    busy: Iterable[int] = (),
    resting: Iterable[int] = (),
    limit: object | None = None,
    gone: bool = False,
    node: str = NODE,
    **fields: Any,
) -> PodState:
    """Return a pod that ``wants`` GPUs and ``has`` some: allocated, and attached unless ``attaches`` says otherwise.

    ``wants=None``: nothing was ever asked for; ``has=None``: nothing was decided yet. ``limit`` is in GPUs.
    ``busy`` are open; those of them that are in ``resting`` do nothing.
    ``fields`` are those of the wish: ``pod("a", wants=1, each=500, priority=3)``.
    """
    has_now = None if has is None else shares(has)
    actual = has_now or () if attaches is None else shares(attaches)
    nothing = has is None and attaches is None and not draining
    return PodState(
        uid=uid,
        node=node,
        requested=None if wants is None else requested(wants, **fields),
        allocated=None if has_now is None and ticket is None else Allocated(1, has_now or (), ticket=ticket),
        attached=None if nothing else replace(attached(draining=draining), shares=actual),
        limit=None if limit is None else parse_milli(limit),
        busy=frozenset(uuid(index) for index in busy),
        resting=frozenset(uuid(index) for index in resting),
        gone=gone,
    )


def world(gpus: int | Sequence[Gpu], pods: Iterable[PodState] = (), node: str = NODE) -> ClusterSnapshot:
    """Return one node with its pods; ``gpus`` is a number of equal ones, or a list."""
    snapshot = ClusterSnapshot()
    snapshot.put_node(node, inventory(gpus) if isinstance(gpus, int) else tuple(gpus))
    for each in pods:
        snapshot.put_pod(each)
    return snapshot


def new(
    uid: str,
    wants: object | None = None,
    *,
    ticket: int | None = None,
    on: str = "",
    created: float = 0.0,
    limit: object | None = None,
    offered: Iterable[str] | None = None,
    **fields: Any,
) -> PodState:
    """A pending pod that ``wants`` GPUs; with a ``ticket`` it stands in the line of the node ``on``. kube-scheduler
    would put it onto the nodes ``offered``.

    ``fields`` are those of the pod (``asks``, ``selector``, ``slots``, ``blocked``, …) or of the wish.
    """
    own = {key: fields.pop(key) for key in ("asks", "selector", "slots", "blocked", "gone", "fault") if key in fields}
    return PodState(
        uid=uid,
        requested=None if wants is None else requested(wants, **fields),
        allocated=None if ticket is None else allocated(ticket=ticket, extra={NOMINATED: on} if on else {}),
        offered=None if offered is None else offered_nodes(offered),
        limit=None if limit is None else parse_milli(limit),
        created=created,
        **own,
    )


def facts(
    slots: int = 100, *, cpu: int | None = None, used: Mapping[str, int] | None = None, **fields: Any
) -> NodeFacts:
    """Return a node with slots, and with ``cpu`` cores if given."""
    allocatable = {SLOT: slots, **({} if cpu is None else {"cpu": cpu * 1000})}
    return NodeFacts(allocatable=allocatable, used=used or {}, **fields)


def cluster(
    nodes: Mapping[str, int | Sequence[Gpu]],
    pods: Iterable[PodState] = (),
    about: Mapping[str, NodeFacts] | None = None,
    priorities: Mapping[str, int] | None = None,
) -> ClusterSnapshot:
    """Return nodes with so many GPUs, or with these; each has slots unless ``about`` says otherwise.

    GPU 1 of the third node is ``uuid(21)``, by which ``priorities`` names it.
    """
    snapshot = ClusterSnapshot(priorities or {})
    for number, (name, gpus) in enumerate(nodes.items()):
        found = inventory(gpus) if isinstance(gpus, int) else gpus
        own = tuple(replace(gpu, uuid=uuid(10 * number + gpu.index)) for gpu in found)
        snapshot.put_node(name, own, (about or {}).get(name, facts()))
    for each in pods:
        snapshot.put_pod(each)
    return snapshot


def gpus_of(snapshot: ClusterSnapshot, node: str = NODE) -> tuple[Gpu, ...]:
    """Return the inventory of a node that is known."""
    found = snapshot.gpus(node)
    assert found is not None, f"{node} is not known"
    return found


def apply(snapshot: ClusterSnapshot, decisions: Iterable[Decision]) -> None:
    """Write decisions into the snapshot, as the scheduler's shell does."""
    for decision in decisions:
        state = snapshot.pod(decision.uid)
        assert state is not None
        snapshot.put_pod(replace(state, allocated=decision.allocated))


def decided(snapshot: ClusterSnapshot, node: str = NODE) -> dict[str, dict[int, int]]:
    """Decide, write the decision, and return each pod's shares: ``{"a": {0: 1000}}``, oldest share first."""
    apply(snapshot, decide(snapshot, node))
    return {state.uid: by_index(state.allocated) for state in snapshot.pods(node)}


def by_index(state: Allocated | Attached | None) -> dict[int, int]:
    """Return shares as ``{index: milli}``."""
    return {int(share.uuid.removeprefix("GPU-")): share.milli for share in state.shares} if state else {}
