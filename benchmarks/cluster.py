"""A resize in a pod of a real cluster against what a cluster does without the product, all in one run.

The floor is what any such design must pay: two hops through the API server, each a PATCH that a watch tells another
process, with no work in between. Its parties are in pods with as much CPU as the product's, with tokens and rights of
their own. It is measured on a pod that is as large as the notebook's, as the API server's work grows with a pod's size,
and on the same cluster: the product's admission policies are asked about these writes too, and pass them by their
conditions. What policies and programs cost beyond that is the product's. The alternatives are Kubernetes' own in-place
resize of a CPU, and what people do today: delete the notebook's pod and create it again.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from jupyter_gpu.kube import Kube, ObjectChange, Reflector, Selection, credentials
from jupyter_gpu.kube.rules import paths

from .lib.figures import CannotRunError, Figure, percentile
from .programs import hop, in_pod

if TYPE_CHECKING:
    from tests.cluster.whole.world import World

COMMAND = "scripts/bench cluster"
BLOCKS, TURNS = 10, 20
"""The product and the floor take turns, a block each."""
CPU_TURNS, POD_TURNS, ROOM_TURNS = 10, 3, 10
SECONDS = 120.0
NAMESPACE, POD, BARE = "bench", "notebook", "bare"
KEYS = ("example.com/asked", "example.com/decided")
FLOOR, ASKER, DECIDER, HEARER = "floor", "asker", "decider", "hearer"
IMAGES = {ASKER: "notebook", DECIDER: "scheduler", HEARER: "node"}
RESOURCES: Mapping[str, Mapping[str, str]] = {
    ASKER: {"cpu": "100m", "memory": "256Mi"},  # as the example of a notebook
    DECIDER: {"cpu": "100m", "memory": "128Mi"},  # as the chart
    HEARER: {"cpu": "50m", "memory": "96Mi"},
}


def run() -> Sequence[Figure]:
    """Measure for some minutes, most of them to create the cluster."""
    if os.geteuid():
        raise CannotRunError("a cluster runs containers, which needs root")
    from tests.cluster.whole import pods
    from tests.cluster.whole.world import installed, namespace, world
    from tests.deploy import product as chart

    with installed() as product:
        namespace(product.cluster, NAMESPACE)
        allowed = {"namespaces": [{"namespace": NAMESPACE}]}
        chart.install(product.cluster, notebooks=allowed)
        images = chart.load(product.cluster, "notebook", "scheduler", "node")
        with world(product, NAMESPACE) as here:
            programs = {"measure.py": in_pod, "hop.py": hop}
            here.programs(**{name: Path(str(module.__file__)).read_text() for name, module in programs.items()})
            image = images["notebook"].reference
            notebook = pods.notebook(POD, image, node="node1", files={pods.PROGRAMS: "programs"})
            notebook["spec"]["containers"][0]["resources"]["requests"] = dict(RESOURCES[ASKER])
            here.create(*_rights())
            here.run(notebook, _twin(notebook), *_parties({name: one.reference for name, one in images.items()}))
            return _measure(here, notebook)


def _twin(notebook: dict[str, Any]) -> dict[str, Any]:
    """Create a pod of the same size that has nothing to do with GPUs, and runs nothing."""
    from tests.cluster.whole import pods

    twin = copy.deepcopy(notebook)
    twin["metadata"]["name"] = BARE
    twin["spec"]["schedulerName"] = "default-scheduler"
    (container,) = twin["spec"]["containers"]
    container["command"] = list(pods.IDLE)
    del container["resources"]["limits"], container["readinessProbe"]
    return twin


def _rights() -> tuple[dict[str, Any], ...]:
    """Grant the rights that the parties of the floor need."""
    group = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    ]
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": FLOOR}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": FLOOR}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": FLOOR},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": FLOOR},
            "subjects": [{"kind": "ServiceAccount", "name": FLOOR, "namespace": NAMESPACE}],
        },
    )


def _parties(images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Create their pods, with the CPU requests of the programs that they stand for."""
    from tests.cluster.whole import pods

    found = []
    for name, requests in RESOURCES.items():
        files = {pods.PROGRAMS: "programs"}
        made = pods.pod(name, image=images[IMAGES[name]], node="node1", slot=False, files=files)
        made["spec"]["serviceAccountName"] = FLOOR
        made["spec"]["containers"][0]["resources"]["requests"] = dict(requests)
        found.append(made)
    return found


def _measure(here: World, notebook: dict[str, Any]) -> Sequence[Figure]:
    from tests.cluster.whole import pods

    devices = here.devices("node1")
    ours: dict[str, list[float]] = {"open": [], "launch": [], "shrink": []}
    floor: list[float] = []
    words = ("python3", f"{pods.PROGRAMS}/measure.py")
    here.exec(POD, *words, "3", pods.TOKEN, *devices)  # warm
    before = len(here.history.of(here.pod(POD).uid))
    for _ in range(BLOCKS):
        found = json.loads(here.exec(POD, *words, str(TURNS), pods.TOKEN, *devices))
        for name in ours:
            ours[name] += found[name]
        floor += _floor(here)
    writes = (len(here.history.of(here.pod(POD).uid)) - before) / (len(ours["open"]) + len(ours["shrink"]))
    cpu = [_cpu_resize(here) for _ in range(CPU_TURNS)]
    again = [_again(here, notebook) for _ in range(POD_TURNS)]
    room = _room(here)
    usable = _middle(ours["open"])
    return [
        *_against(floor, "gpu.resize until open() succeeds in the pod", ours["open"], (1.2, None, 2.0)),
        *_against(floor, "gpu.resize until a program has its first turn there", ours["launch"], (None, None, None)),
        Figure.of("gpu.resize until open() fails in the pod, p50", "ms", ours["shrink"], COMMAND, baseline=floor),
        Figure(
            "until open(), against an in-place CPU resize",
            "ms",
            usable,
            COMMAND,
            goal=_middle(cpu) / 40,
            baseline=_middle(cpu),
        ),
        Figure(
            "until open(), against a new pod", "ms", usable, COMMAND, goal=_middle(again) / 150, baseline=_middle(again)
        ),
        Figure("writes to the API server for a resize", "", writes, COMMAND, goal=3),
        Figure.of("a GPU comes free until a pod that waited is bound, p50", "ms", room, COMMAND, goal=100),
        Figure.of("a GPU comes free until a pod that waited is bound, p99", "ms", room, COMMAND, at=99, goal=100),
    ]


def _room(here: World) -> list[float]:
    """Return the milliseconds from the annotation of a closed GPU to the Binding of a pod that waited for it."""
    from tests.cluster.whole import pods

    here.delete(POD)
    whole = len(here.devices("node1"))
    here.run(pods.pod("rich", wants=whole, node="node1"))
    found = []
    for number in range(ROOM_TURNS):
        name, before = f"waiting-{number}", here.history.moments[-1].number
        here.create(pods.pod(name, wants=1, node="node1"))
        here.event(name, "there is no room", lambda reason, _: reason == "FailedScheduling")
        here.ask("rich", whole - 1)
        here.until(lambda name=name: here.pod(name).node, "the pod that waits to be bound")  # type: ignore[misc]
        freed = here.history.first("rich", lambda state: len(state.held) == whole - 1, after=before)
        bound = here.history.first(name, lambda state: state.node, after=before)
        found.append((bound.heard - freed.heard) * 1000)
        here.delete(name)
        here.ask("rich", whole)
        here.has("rich", 1000 * whole)
    return found


def _against(
    floor: Sequence[float], what: str, samples: Sequence[float], goals: tuple[float | None, ...]
) -> Iterator[Figure]:
    """Return figures of median, p90 and p99; ``goals``: at most so many times the floor's."""
    for percent, times in zip((50, 90, 99), goals, strict=True):
        goal = times and times * percentile(floor, percent)
        yield Figure.of(f"{what}, p{percent}", "ms", samples, COMMAND, at=percent, goal=goal, baseline=floor)


def _middle(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2]


def _floor(here: World) -> list[float]:
    """Return the milliseconds of two hops: one party asks, a second one answers, and a third one hears that."""
    asked, decided = KEYS
    with _party(here, DECIDER, "answer", asked, decided), _party(here, HEARER, "hear", decided) as hearer:
        with _party(here, ASKER, "ask", decided, asked, str(TURNS)) as asker:
            began = [asker.readline().split() for _ in range(TURNS)]
        heard: dict[str, float] = {}
        while not heard.keys() >= {word for _, word in began}:
            moment, word = hearer.readline().split()
            heard[word] = float(moment)
    return [(heard[word] - float(moment)) * 1000 for moment, word in began]


@contextmanager
def _party(here: World, pod: str, *words: str) -> Iterator[IO[str]]:
    """Start a program in that pod, and yield what it prints."""
    from tests.cluster.testbed import binaries
    from tests.cluster.whole import pods

    flags = ("--kubeconfig", str(here.cluster.kubeconfig), "--namespace", NAMESPACE)
    program = ("timeout", f"{SECONDS:.0f}", "python3", f"{pods.PROGRAMS}/hop.py", NAMESPACE, BARE, *words)
    command = (str(binaries.path("kubectl")), "exec", "--stdin", *flags, pod, "--", *program)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n", f"{pod} does not follow the pod {BARE}."
        yield process.stdout
        process.stdin.close()  # the program ends, and kubectl with it


def _cpu_resize(here: World) -> float:
    """Return the milliseconds until the pod's status shows the new CPU, from any moment of the kubelet's second."""
    time.sleep(random.uniform(0, 1))
    now = json.loads(here.kubectl("get", "pod", BARE, "-o", "json"))["spec"]["containers"][0]
    cpu = "20m" if now["resources"]["requests"]["cpu"] == "10m" else "10m"
    body = {"spec": {"containers": [{"name": now["name"], "resources": {"requests": {"cpu": cpu}}}]}}
    return asyncio.run(_resized(here.cluster.kubeconfig, body, cpu))


async def _resized(kubeconfig: Path, body: dict[str, Any], cpu: str) -> float:
    done = asyncio.Event()

    def hear(change: ObjectChange) -> None:
        for each in (change.object.get("status") or {}).get("containerStatuses") or ():
            if (each.get("resources") or {}).get("requests", {}).get("cpu") == cpu:
                done.set()

    async with Kube(credentials.load(kubeconfig)) as kube:
        watch = Reflector(kube, Selection(paths.pods(NAMESPACE), fields=f"metadata.name={BARE}"), on_change=hear)
        task = asyncio.create_task(watch.run())
        await watch.synced.wait()
        done.clear()
        began = time.monotonic()
        await kube.patch(
            paths.pod(NAMESPACE, BARE, "resize"), body, content_type="application/strategic-merge-patch+json"
        )
        async with asyncio.timeout(SECONDS):
            await done.wait()
        took = (time.monotonic() - began) * 1000
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return took


def _again(here: World, notebook: dict[str, Any]) -> float:
    """Return the milliseconds to delete the notebook's pod and to have it ready again, empty."""
    began = time.monotonic()
    here.delete(POD)
    here.run(notebook)
    return (time.monotonic() - began) * 1000
