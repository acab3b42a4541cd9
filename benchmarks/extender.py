"""Time that kube-scheduler waits for the extender: filter and prioritize of one new pod, with bodies of real size.

CPU time is counted: nothing else is waited for, and other work on the machine is not the extender's.
"""

import asyncio
import json
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, INVENTORY, Allocated, Attached, encode
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.extender import Extender
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.settings import ExtenderSettings, SchedulerSettings
from jupyter_gpu_scheduler.waiting import WaitingPods

from .lib.figures import Figure
from .lib.gpus import inventory

_GOALS = {100: 1.0, 1_000: 5.0, 5_000: 25.0}  # nodes: milliseconds
_PODS = 4  # on each node
_QUESTIONS = 200
_COMMAND = "scripts/bench extender"
_WISHES = (250, 500, 1000, 1000, 1000, 2000, 2000, 4000)


def run() -> Sequence[Figure]:
    """Measure milliseconds of filter and prioritize together; the baseline only reads the body and lists every node."""
    return [figure for nodes, goal in _GOALS.items() for figure in asyncio.run(_measure(nodes, goal))]


async def _measure(nodes: int, goal: float) -> list[Figure]:
    chance = random.Random(nodes)
    cache, extender = world(nodes, chance)
    names = [f"node-{number}" for number in range(nodes)]
    samples: list[float] = []
    first: list[float] = []
    baseline: list[float] = []
    asked: set[int] = set()
    await extender.warm()
    for number in range(_QUESTIONS):
        milli = chance.choice(_WISHES)
        pod = new_pod(number, milli)
        cache.pod_changed(ObjectChange("added", pod))
        question = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()
        began = time.thread_time()
        _, found = await extender.filter(question)
        json.dumps(found)
        seconds = time.thread_time() - began
        second = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": found["NodeNames"]}).encode()
        began = time.thread_time()
        _, scores = await extender.prioritize(second)
        json.dumps(scores)
        (samples if milli in asked else first).append((seconds + time.thread_time() - began) * 1000)
        asked.add(milli)
        baseline.append(_exchange(question) + _exchange(second))
        cache.pod_changed(ObjectChange("removed", pod))
        _churn(cache, chance, nodes)
    name = f"extender: filter and prioritize, {nodes:,} nodes"
    return [
        Figure.of(name, "ms", samples, _COMMAND, goal=goal, baseline=baseline),
        Figure.of(f"{name}, first of its kind", "ms", first, _COMMAND),
    ]


def _exchange(question: bytes) -> float:
    """Return the milliseconds to read a request and to list all its nodes again, with nothing decided."""
    began = time.thread_time()
    json.dumps({"NodeNames": json.loads(question)["NodeNames"]})
    return (time.thread_time() - began) * 1000


def _churn(cache: ClusterCache, chance: random.Random, nodes: int) -> None:
    """Change something between two requests, as happens in a cluster."""
    number = chance.randrange(nodes * _PODS)
    cache.pod_changed(ObjectChange("changed", running_pod(number, nodes, chance, version=chance.randrange(10, 10**9))))


def world(
    nodes: int,
    chance: random.Random,
    settings: SchedulerSettings = SchedulerSettings(),  # noqa: B008 it can't be changed
) -> tuple[ClusterCache, Extender]:
    """Return the cache of a synthetic cluster, and the extender that answers from it."""
    cache = ClusterCache(lambda: None, settings)
    for number in range(nodes):
        cache.node_changed(ObjectChange("added", node(number)))
    for number in range(nodes * _PODS):
        cache.pod_changed(ObjectChange("added", running_pod(number, nodes, chance)))
    policy = Policy()
    waiting = WaitingPods(cache, _not_leading, policy, wake_seconds=3600)
    binder: Any = None
    return cache, Extender(cache, waiting, binder, policy, lambda: "", ExtenderSettings())


def _not_leading(decisions: Iterable[Decision], kind: str) -> None:
    """Drop decisions about queues: nothing is written here."""


def node(number: int) -> dict[str, Any]:
    """Return a Node with eight GPUs in two islands."""
    name, annotations = f"node-{number}", {INVENTORY: encode(inventory(number))}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": annotations},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "jupyter-gpu.io/slot": "32"}},
    }


def running_pod(number: int, nodes: int, chance: random.Random, version: int = 1) -> dict[str, Any]:
    """Return a pod that has nothing, a part of a GPU, or one."""
    place, slot = number % nodes, number // nodes
    milli = chance.choice((0, 250, 500, 1000))
    shares = (GpuShare(f"GPU-{place}-{2 * slot}", milli),) if milli else ()
    pod = new_pod(number, milli)
    pod["metadata"] |= {"name": f"old-{number}", "uid": f"old-{number}", "resourceVersion": str(version)}
    pod["metadata"]["annotations"] |= {
        ALLOCATED: encode(Allocated(1, shares)),
        ATTACHED: encode(Attached(1, shares)),
    }
    pod["spec"]["nodeName"] = f"node-{place}"
    return pod


def new_pod(number: int, milli: int) -> dict[str, Any]:
    """Return a notebook's pod, with what such a pod usually carries."""
    variables = [{"name": f"JUPYTERHUB_SETTING_{index}", "value": "x" * 40} for index in range(30)]
    limits = {"cpu": "2", "memory": "8Gi", "jupyter-gpu.io/slot": "1"}
    return {
        "metadata": {
            "name": f"new-{number}",
            "namespace": "hub",
            "uid": f"new-{number}",
            "resourceVersion": "5",
            "labels": {"app": "jupyterhub", "component": "singleuser-server"},
            "annotations": {"jupyter-gpu.io/requested": json.dumps({"generation": 1, "milli": milli})},
        },
        "spec": {
            "containers": [
                {"name": "notebook", "image": "notebook:1", "env": variables, "resources": {"limits": limits}}
            ],
            "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": f"claim-{number}"}}],
        },
        "status": {"phase": "Pending"},
    }
