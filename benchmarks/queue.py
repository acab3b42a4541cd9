"""The cost of a queue pass of the scheduler while 10,000 new pods wait, and of a departure from a queue of 1,000.

The baseline is the simplest way: sort all waiting pods and try each of them; update every position.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_scheduler.rules.new_pods.nominate import fits_at, leave, may_go, must_leave, nominate
from jupyter_gpu_scheduler.rules.new_pods.review import review
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts

from .lib.figures import Figure

_COMMAND = "scripts/bench queue"
_NODES, _GPUS, _PENDING = 200, 8, 10_000
_LONG = 1_000
_TURNS = 30
_POLICY = Policy()
_WISHES = (Wish(1000), Wish(1000, priority=1), Wish(2000), Wish(4000, topology="island"), Wish(500), Wish(8000))
_FACTS = NodeFacts(allocatable={SLOT: 200})
_EVERYWHERE = offered_nodes(f"node-{number}" for number in range(_NODES))


def run() -> Sequence[Figure]:
    """Measure milliseconds of a pass, and how many pods are written to when one leaves."""
    snapshot = _cluster()
    calm = _figure("nothing changed", snapshot, (), 1.0)
    _give_back(snapshot, "node-0", 250)
    part = _figure("a small part of a GPU came free", snapshot, ("node-0",), 5.0)
    return [calm, part, *_departures()]


def _figure(what: str, snapshot: ClusterSnapshot, changed: tuple[str, ...], goal: float) -> Figure:
    ours: list[float] = []
    naive: list[float] = []
    for turn in range(_TURNS):  # in turn, so that a disturbance affects both
        _touch(snapshot, changed, 2.0 * turn)
        ours.append(_milliseconds(lambda: _pass(snapshot, changed)))
        _touch(snapshot, changed, 2.0 * turn + 1)
        naive.append(_milliseconds(lambda: _each_in_turn(snapshot, changed)))
    name = f"queue: a pass while {_PENDING:,} pods wait, {what}"
    return Figure.of(name, "ms", ours, _COMMAND, goal=goal, baseline=naive)


def _touch(snapshot: ClusterSnapshot, nodes: tuple[str, ...], when: float) -> None:
    """Change something on a node, so that no earlier answer counts."""
    for node in nodes:
        pod = snapshot.pods(node)[0]
        snapshot.put_pod(replace(pod, created=when + 1))


def _pass(snapshot: ClusterSnapshot, changed: tuple[str, ...]) -> None:
    """Run a pass as the controller does."""
    assert review(snapshot, _POLICY, changed) == ()
    for node in changed:
        assert decide(snapshot, node) == ()


def _each_in_turn(snapshot: ClusterSnapshot, changed: tuple[str, ...]) -> None:
    """Do it the simplest way."""
    pods = [pod for name in ("", *changed) for pod in snapshot.pods(name)]
    with_room = [name for name in changed if any(snapshot.free(gpu.uuid) for gpu in snapshot.gpus(name) or ())]
    for pod in sorted(pods, key=lambda pod: (-pod.priority, pod.ticket or 0, pod.created, pod.uid)):
        if pod.pending and pod.nominated in changed and must_leave(snapshot, pod):
            assert leave(snapshot, pod, _POLICY, changed) is None
        elif pod.pending and with_room and not fits_at(snapshot, pod, pod.nominated):
            able = [name for name in with_room if may_go(snapshot, pod, name) and fits_at(snapshot, pod, name)]
            assert not able or nominate(snapshot, pod, able, _POLICY) is None
    for node in changed:
        assert decide(snapshot, node) == ()


def _milliseconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _departures() -> list[Figure]:
    """Let the first of a long queue leave, again and again."""
    snapshot = ClusterSnapshot()
    snapshot.put_node("node-0", _inventory(0), _FACTS)
    snapshot.put_pod(_owner(0))
    for number in range(_LONG):
        snapshot.put_pod(_waiting(number, "node-0", Wish(1000)))
    _carry_out(snapshot, "node-0")
    writes: list[float] = []
    took: list[float] = []
    for number in range(100):
        snapshot.remove_pod(f"pending-{number:05}")
        took.append(_milliseconds(lambda: _pass_after_a_departure(snapshot, writes)))
    left = [float(_LONG - 1 - number) for number in range(100)]
    name = f"queue: one leaves a queue of {_LONG:,}"
    return [
        Figure.of(f"{name}, others written to", "pods", writes, _COMMAND, at=90, goal=50.0, baseline=left),
        Figure.of(f"{name}, to decide", "ms", took, _COMMAND),
    ]


def _pass_after_a_departure(snapshot: ClusterSnapshot, writes: list[float]) -> None:
    writes.append(_carry_out(snapshot, "node-0"))


def _carry_out(snapshot: ClusterSnapshot, node: str) -> int:
    decisions = decide(snapshot, node)
    for decision in decisions:
        pod = snapshot.pod(decision.uid)
        assert pod
        snapshot.put_pod(replace(pod, allocated=decision.allocated))
    return len(decisions)


def _cluster() -> ClusterSnapshot:
    """Return a cluster whose GPUs are all taken, and whose pods know their positions."""
    chance = random.Random(0)
    snapshot = ClusterSnapshot()
    for node in range(_NODES):
        snapshot.put_node(f"node-{node}", _inventory(node), _FACTS)
        snapshot.put_pod(_owner(node))
    for number in range(_PENDING):
        snapshot.put_pod(_waiting(number, f"node-{chance.randrange(_NODES)}", chance.choice(_WISHES)))
    for node in range(_NODES):
        _carry_out(snapshot, f"node-{node}")
    return snapshot


def _inventory(node: int) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(f"GPU-{node}-{index}", index, "NVIDIA H100 80GB HBM3", 80 * 1024**3, island=f"island-{index // 4}")
        for index in range(_GPUS)
    )


def _owner(node: int) -> PodState:
    shares = tuple(GpuShare(f"GPU-{node}-{index}", 1000) for index in range(_GPUS))
    wish = Requested(1, Wish(1000 * _GPUS))
    return PodState(f"owner-{node}", f"node-{node}", wish, Allocated(1, shares), Attached(1, shares))


def _give_back(snapshot: ClusterSnapshot, node: str, milli: int) -> None:
    """Let the pod that has everything give back a part of one GPU."""
    pod = snapshot.pod(f"owner-{node.removeprefix('node-')}")
    assert pod
    assert pod.allocated
    *kept, last = pod.allocated.shares
    shares = (*kept, GpuShare(last.uuid, 1000 - milli))
    wish = Requested(2, Wish(1000 * _GPUS - milli))
    snapshot.put_pod(replace(pod, requested=wish, allocated=Allocated(2, shares), attached=Attached(2, shares)))
    _carry_out(snapshot, node)


def _waiting(number: int, node: str, wish: Wish) -> PodState:
    allocated = Allocated(1, ticket=number + 1, extra={NOMINATED: node})
    return PodState(
        f"pending-{number:05}",
        requested=Requested(1, wish),
        allocated=allocated,
        created=float(number),
        asks={"cpu": 1},
        offered=_EVERYWHERE,
    )
