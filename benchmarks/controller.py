"""Resizes per second of a whole cluster: the scheduler as a process on a real API server, against the bare writes.

`python -m benchmarks.controller --nodes 5000 --pods 20000` measures at full size; without, a size that takes a minute.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_gpu.kube import Kube, kubeconfig, objects, paths
from jupyter_gpu.model.annotations import ALLOCATED, INVENTORY, REQUESTED, encode
from jupyter_gpu.model.gpu import Gpu

from .figures import CannotRunError, Figure, table

_NODES, _PODS = 50, 200
_GPUS = 8
_AT_ONCE = 16
_TURNS = 2
_COMMAND = "python -m benchmarks.controller --nodes {nodes} --pods {pods}"


def run(nodes: int = _NODES, pods: int = _PODS) -> Sequence[Figure]:
    """Milliseconds per resize (requested and allocated written), memory and start-up time of the scheduler."""
    try:
        from tests.cluster.testbed import ClusterError, control_plane
    except ImportError as error:
        raise CannotRunError(f"the test cluster is not there: {error}") from None
    try:
        with control_plane() as plane, tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_measure(plane.kubeconfig, Path(folder), nodes, pods))
    except ClusterError as error:
        raise CannotRunError(str(error)) from None


async def _measure(config: Path, folder: Path, nodes: int, pods: int) -> Sequence[Figure]:
    command = _COMMAND.format(nodes=nodes, pods=pods)
    async with Kube(kubeconfig(config)) as kube:
        await _each(nodes, lambda number: kube.create(paths.nodes(), _node(number)))
        await _each(pods, lambda number: kube.create(paths.pods("default"), _pod(number, nodes)))
        bare = await _bare(kube, pods)
        began = time.monotonic()
        process = _start(config, folder)
        try:
            await _until(kube, 1, process)
            started = time.monotonic() - began
            spent = []
            for turn in range(2, 2 + _TURNS):
                began = time.monotonic()
                await _each(pods, lambda number, turn=turn: kube.patch(_status(number), _wish(number, turn)))
                await _until(kube, turn, process)
                spent.append(time.monotonic() - began)
            memory = _memory(process.pid)
        finally:
            process.kill()
            process.wait()
    size = f"{nodes:,} nodes, {pods:,} pods"
    best = min(spent)
    return [
        Figure(f"controller: a resize, {size}", "ms", 1000 * best / pods, command, 1000 * bare / pods / 0.8,
               1000 * bare / pods),
        Figure(f"controller: from nothing to all decided, {size}", "s", started, command),
        Figure(f"controller: memory, {size}", "MiB", memory, command),
    ]  # fmt: skip


async def _bare(kube: Kube, pods: int) -> float:
    """Seconds for the same two writes per pod, with nobody who decides."""
    began = time.monotonic()

    async def both(number: int) -> None:
        found = await kube.patch(_status(number), _wish(number, 1))
        text = json.dumps({"observedGeneration": 0, "shares": []})
        metadata = {
            "uid": objects.uid(found),
            "resourceVersion": objects.resource_version(found),
            "annotations": {ALLOCATED: text},
        }
        await kube.patch(_status(number), {"metadata": metadata})

    await _each(pods, both)
    return time.monotonic() - began


async def _each(count: int, do: Any) -> None:
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            await do(number)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _until(kube: Kube, generation: int, process: "subprocess.Popen[bytes]") -> None:
    """Wait until every pod's newest wish is decided, told by a watch as any client would."""
    listing = await kube.list(paths.pods("default"))
    left = {objects.name(pod) for pod in listing.items if not _decided(pod, generation)}
    while left:
        async for event in kube.watch(paths.pods("default"), resource_version=listing.resource_version):
            if _decided(event.object, generation):
                left.discard(objects.name(event.object))
            if not left:
                return
        if process.poll() is not None:
            raise RuntimeError("the scheduler ended")
        listing = await kube.list(paths.pods("default"))
        left = {objects.name(pod) for pod in listing.items if not _decided(pod, generation)}


def _decided(pod: dict[str, Any], generation: int) -> bool:
    text = objects.annotation(pod, ALLOCATED)
    return text is not None and json.loads(text)["observedGeneration"] >= generation


def _start(config: Path, folder: Path) -> "subprocess.Popen[bytes]":
    settings = folder / "settings.json"
    ports = {"extender": {"port": 0}, "status": {"address": "127.0.0.1", "port": 0}}
    settings.write_text(json.dumps({**ports, "writes": {"concurrent": _AT_ONCE}}))
    return subprocess.Popen(
        [sys.executable, "-m", "jupyter_gpu_scheduler", "--settings", settings],
        env={**os.environ, "KUBECONFIG": str(config), "JUPYTER_GPU_LOG": "ERROR"},
    )


def _memory(pid: int) -> float:
    """MiB that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _status(number: int) -> str:
    return paths.pod("default", f"pod-{number}", "status")


def _wish(number: int, generation: int) -> dict[str, Any]:
    wish = {"generation": generation, "milli": (0, 500, 1000, 2000)[(number + generation) % 4]}
    return {"metadata": {"annotations": {REQUESTED: json.dumps(wish)}}}


def _node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    gpus = tuple(Gpu(f"GPU-{number}-{index}", index, "NVIDIA H100 80GB HBM3", 80 * 1024**3) for index in range(_GPUS))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {INVENTORY: encode(gpus)}},
    }


def _pod(number: int, nodes: int) -> dict[str, Any]:
    limits = {"jupyter-gpu.io/slot": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}"},
        "spec": {
            "nodeName": f"node-{number % nodes}",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=_NODES)
    parser.add_argument("--pods", type=int, default=_PODS)
    arguments = parser.parse_args()
    print(table(run(arguments.nodes, arguments.pods)))
