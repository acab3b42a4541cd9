"""Resizes per second of a whole cluster: the scheduler as a process on a real API server, against the bare writes.

`scripts/bench controller` takes a minute; `python -m benchmarks.controller --nodes 5000 --pods 20000` is full size.
Both turns alternate, a block of resizes each, as other load on the machine varies. In a bare turn there is no
scheduler, and the client writes the decision too.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from jupyter_gpu.kube import Kube, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import ALLOCATED, INVENTORY, REQUESTED, Allocated, Requested, Wish, encode
from jupyter_gpu.model.gpu import Gpu, GpuShare

from .lib import store
from .lib.figures import CannotRunError, Figure, table

if TYPE_CHECKING:
    from tests.cluster.testbed import ControlPlane

_NODES, _PODS = 50, 200
_GPUS = 8
_AT_ONCE = 16
_ROUNDS = 3
_BLOCK = 2_000  # resizes in a turn, at most
_SHARE = 0.8  # of the resizes that the bare API server sustains: the goal
_AMOUNTS = (0, 500, 1000, 2000)
_BARE = ("example.com/asked", "example.com/decided")
_COMMAND = "python -m benchmarks.controller --nodes {nodes} --pods {pods}"


@dataclass
class _World:
    """A cluster without its scheduler."""

    kube: Kube
    plane: "ControlPlane"
    folder: Path
    nodes: int
    pods: int
    generations: list[int] = field(default_factory=list)

    @property
    def block(self) -> range:
        """Return the numbers of the pods that a turn resizes, spread over all nodes."""
        return range(0, self.pods, max(1, self.pods // _BLOCK))

    def pid(self, part: str) -> int:
        """Return the process of a part of the control plane."""
        return int(json.loads(self.plane.record(part).read_text())["pid"])


@dataclass
class _Turn:
    """The time of one block of resizes."""

    seconds: float = 0.0
    processor: dict[str, float] = field(default_factory=dict)
    """Seconds of the processors, by process."""


def run(nodes: int = _NODES, pods: int = _PODS) -> Sequence[Figure]:
    """Measure milliseconds per resize (requested and allocated written), memory and start-up time of the scheduler."""
    try:
        from tests.cluster.testbed import ClusterError, control_plane
    except ImportError as error:
        raise CannotRunError(f"the test cluster is not there: {error}") from None
    try:
        with control_plane() as plane, tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_measure(plane, Path(folder), nodes, pods))
    except ClusterError as error:
        raise CannotRunError(str(error)) from None


async def _measure(plane: "ControlPlane", folder: Path, nodes: int, pods: int) -> Sequence[Figure]:
    async with Kube(kubeconfig(plane.kubeconfig)) as kube:
        world = _World(kube, plane, folder, nodes, pods, [1] * pods)
        await _populate(world)
        await _bare(world)  # the first write of an object takes longer
        bare: list[_Turn] = []
        ours: list[_Turn] = []
        starts: list[float] = []
        memory: list[float] = []
        for number in range(_ROUNDS):
            bare.append(await _bare(world))
            process, started = await _start(world)
            try:
                starts.append(started)
                ours.append(await _resizes(world, process))
                memory.append(_memory(process.pid))
            finally:
                process.terminate()  # it releases its lease for the next one
                await asyncio.to_thread(process.wait)
            _tell(
                f"turn {number + 1} of {_ROUNDS}: {_per_second(world, ours[-1])}, bare {_per_second(world, bare[-1])}"
            )
        bare.append(await _bare(world))
    return _figures(world, bare, ours, starts, memory)


def _figures(
    world: _World, bare: Sequence[_Turn], ours: Sequence[_Turn], starts: Sequence[float], memory: Sequence[float]
) -> Sequence[Figure]:
    size, command = f"{world.nodes:,} nodes, {world.pods:,} pods", _COMMAND.format(nodes=world.nodes, pods=world.pods)
    count = len(world.block)

    def per_resize(turns: Sequence[_Turn], *processes: str) -> float:
        return median(1000 * sum(turn.processor[name] for name in processes) / count for turn in turns)

    around = [(one.seconds + other.seconds) / 2 for one, other in pairwise(bare)]
    least = median(1000 * seconds / count for seconds in around)
    here = median(1000 * turn.seconds / count for turn in ours)
    ratio = median(turn.seconds / seconds for turn, seconds in zip(ours, around, strict=True))
    store = ("apiserver", "etcd")
    return [
        Figure(f"controller: a resize, {size}", "ms", here, command, least / _SHARE, least),
        Figure("controller: the same as a multiple of the bare writes beside it", "", ratio, command, 1 / _SHARE),
        Figure("controller: processors' time of a resize, scheduler", "ms", per_resize(ours, "scheduler"), command),
        Figure(
            "controller: processors' time of a resize, API server and etcd",
            "ms",
            per_resize(ours, *store),
            command,
            baseline=per_resize(bare, *store),
        ),
        Figure(f"controller: from its start to its first decision, {size}", "s", median(starts), command),
        Figure(f"controller: memory, {size}", "MiB", max(memory), command),
    ]


# --- the cluster ------------------------------------------------------------------------------------------------------


async def _populate(world: _World) -> None:
    """Create all nodes and pods; every pod has what it wishes."""
    kube, etcd = world.kube, f"http://127.0.0.1:{world.plane.layout.etcd_port}"
    await kube.create(paths.nodes(), _node(0))
    await kube.create(paths.pods("default"), _pod(0, world.nodes))
    node, pod = await kube.get(paths.node("node-0")), await kube.get(paths.pod("default", "pod-0"))
    nodes = store.copies(node, (_node(number) for number in range(1, world.nodes)))
    pods = store.copies(pod, (_pod(number, world.nodes) for number in range(1, world.pods)))
    await asyncio.to_thread(store.put, etcd, "/registry/minions", nodes, "nodes")
    await asyncio.to_thread(store.put, etcd, "/registry/pods/default", pods, "pods")
    for path, count in ((paths.nodes(), world.nodes), (paths.pods("default"), world.pods)):
        while len((await kube.list(path, resource_version="0")).items) < count:  # noqa: ASYNC110 there is no event to await
            await asyncio.sleep(1)


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    gpus = tuple(Gpu(f"GPU-{number}-{index}", index, "NVIDIA H100 80GB HBM3", 80 * 1024**3) for index in range(_GPUS))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {INVENTORY: encode(gpus)}},
        "spec": {},
    }


def _pod(number: int, nodes: int) -> dict[str, Any]:
    place, slot = number % nodes, number // nodes
    milli = _milli(number, 1)
    shares = tuple(
        GpuShare(f"GPU-{place}-{2 * slot + piece}", min(milli, 1000)) for piece in range((milli + 999) // 1000)
    )
    has = {REQUESTED: encode(Requested(1, Wish(milli))), ALLOCATED: encode(Allocated(1, shares))}
    limits = {"jupyter-gpu.io/slot": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "annotations": has},
        "spec": {
            "nodeName": f"node-{place}",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
    }


def _milli(number: int, generation: int) -> int:
    return _AMOUNTS[(number + generation) % len(_AMOUNTS)]


# --- turns ------------------------------------------------------------------------------------------------------------


async def _bare(world: _World) -> _Turn:
    """Do the same two writes per pod, without decisions."""
    asked, decided = _BARE

    async def both(number: int) -> None:
        generation = int(time.monotonic() * 1000)
        wish = encode(Requested(generation, Wish(_milli(number, generation))))
        found = await world.kube.patch(_status(number), {"metadata": {"annotations": {asked: wish}}})
        allocated = Allocated(generation, (GpuShare(f"GPU-{number % world.nodes}-0", 1000),))
        metadata = {
            "uid": objects.uid(found),
            "resourceVersion": objects.resource_version(found),
            "annotations": {decided: encode(allocated)},
        }
        await world.kube.patch(_status(number), {"metadata": metadata})

    with _timed(world) as turn:
        await _each(world.block, both)
    return turn


async def _resizes(world: _World, process: "subprocess.Popen[bytes]") -> _Turn:
    """Write a new wish for each pod of the block, and wait for the last decision, as any client would."""

    async def wish(number: int) -> dict[str, Any]:
        world.generations[number] += 1
        text = encode(Requested(world.generations[number], Wish(_milli(number, world.generations[number]))))
        return await world.kube.patch(_status(number), {"metadata": {"annotations": {REQUESTED: text}}})

    first, *others = world.block
    wanted = {_name(number): world.generations[number] + 1 for number in world.block}
    with _timed(world, scheduler=process.pid) as turn:
        version = objects.resource_version(await wish(first))
        decided = asyncio.create_task(_until(world.kube, wanted, version, process))
        await _each(others, wish)
        await decided
    return turn


async def _until(
    kube: Kube, wanted: dict[str, int], version: str, process: "subprocess.Popen[bytes]", one: str = ""
) -> None:
    """Wait until these generations of pods are decided, by a watch from ``version`` on; ``one``: of one pod."""
    fields = f"metadata.name={one}" if one else ""
    while wanted:
        async for event in kube.watch(paths.pods("default"), resource_version=version, fields=fields):
            version = objects.resource_version(event.object) or version
            name, text = objects.name(event.object), objects.annotation(event.object, ALLOCATED)
            if name in wanted and text and json.loads(text)["observedGeneration"] >= wanted[name]:
                del wanted[name]
            if not wanted:
                return
            if process.poll() is not None:
                raise RuntimeError("the scheduler ended")


async def _each(numbers: Sequence[int], do: Callable[[int], Awaitable[object]]) -> None:
    """Call a function for all of these, some at once."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            await do(number)

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


@contextmanager
def _timed(world: _World, **processes: int) -> Iterator[_Turn]:
    """Measure what is done inside; ``processes``: besides the API server and its store."""
    pids = {**processes, **{part: world.pid(part) for part in ("apiserver", "etcd")}}
    before = {name: _processor(pid) for name, pid in pids.items()}
    turn = _Turn()
    began = time.monotonic()
    yield turn
    turn.seconds = time.monotonic() - began
    turn.processor = {name: _processor(pid) - before[name] for name, pid in pids.items()}


async def _start(world: _World) -> tuple["subprocess.Popen[bytes]", float]:
    """Start the scheduler; return how many seconds it took to decide earlier wishes."""
    last = max(range(world.pods), key=lambda number: f"node-{number % world.nodes}")  # it handles nodes in this order
    world.generations[last] += 1
    text = encode(Requested(world.generations[last], Wish(_milli(last, world.generations[last]))))
    wish = await world.kube.patch(_status(last), {"metadata": {"annotations": {REQUESTED: text}}})
    settings = world.folder / "settings.json"
    ports = {"extender": {"port": 0}, "status": {"address": "127.0.0.1", "port": 0}}
    settings.write_text(json.dumps({**ports, "writes": {"concurrent": _AT_ONCE}}))
    began = time.monotonic()
    process = subprocess.Popen(  # noqa: ASYNC220 it takes milliseconds
        [sys.executable, "-m", "jupyter_gpu_scheduler", "--settings", settings],
        env={**os.environ, "KUBECONFIG": str(world.plane.kubeconfig), "JUPYTER_GPU_LOG": "ERROR"},
    )
    wanted = {_name(last): world.generations[last]}
    await _until(world.kube, wanted, objects.resource_version(wish), process, _name(last))
    return process, time.monotonic() - began


def _processor(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    """Return the MiB of a process in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _name(number: int) -> str:
    return f"pod-{number}"


def _status(number: int) -> str:
    return paths.pod("default", _name(number), "status")


def _per_second(world: _World, turn: _Turn) -> str:
    return f"{len(world.block) / turn.seconds:.0f}/s"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=_NODES)
    parser.add_argument("--pods", type=int, default=_PODS)
    arguments = parser.parse_args()
    print(table(run(arguments.nodes, arguments.pods)))
