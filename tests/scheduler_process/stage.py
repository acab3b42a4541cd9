"""A control plane with nodes that exist only as objects, the scheduler as a process, and a watcher of the rules."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.kube import Kube, NotFound, ObjectChange, Reflector, Selection, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    Allocated,
    Attached,
    decode_allocated,
    decode_attached,
    encode,
)
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import Device, Gpu
from tests.cluster.testbed import ControlPlane, until
from tests.scheduler_process.agents import Agents

T = TypeVar("T")
GIB = 1024**3


class Loop:
    """An event loop of its own thread, so that tests read from top to bottom."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        """Run `work` there and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def close(self) -> None:
        """Stop it."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class Scheduler:
    """One scheduler process; `log` is all that it wrote."""

    def __init__(self, folder: Path, config: Path, settings: Mapping[str, Any], **environ: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / f"scheduler-{time.monotonic_ns()}.log"
        path = folder / f"settings-{time.monotonic_ns()}.json"
        whole = {"status": {"address": "127.0.0.1", "port": 0}, "extender": {"port": 0}, **settings}
        path.write_text(json.dumps(whole))
        variables = {**os.environ, "KUBECONFIG": str(config), **environ}
        variables.pop("KUBERNETES_SERVICE_HOST", None)
        with self._file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpu_scheduler", "--settings", path],
                stdout=log,
                stderr=log,
                env=variables,
            )

    @property
    def log(self) -> str:
        """All lines."""
        return self._file.read_text(errors="replace")

    @property
    def port(self) -> int:
        """Return the port of probes and metrics."""
        return int(self._ports.rsplit(" ", 1)[1].rstrip("."))

    @property
    def extender_port(self) -> int:
        """Return the port of the extender."""
        return int(self._ports.rsplit("Extender on port ", 1)[1].split(",")[0])

    @property
    def _ports(self) -> str:
        line = until(lambda: next(line for line in self.log.splitlines() if "status on port" in line), what="its ports")
        assert line
        return line

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a probe."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels that begin with `name`."""
        lines = self.get("/metrics")[1].splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def leads(self) -> bool:
        """Whether it leads."""
        return self.metric("jupyter_gpu_scheduler_leading ") == 1

    def until_leading(self) -> Scheduler:
        """Wait for it."""
        until(self.leads, what=f"the scheduler to lead; its log:\n{self.log}")
        return self

    def kill(self) -> None:
        """End the process as a power cut would."""
        self.process.kill()
        self.process.wait(30)

    def stop_by_itself(self) -> int:
        """Wait for its end; its exit status."""
        return self.process.wait(60)

    def stop(self) -> int:
        """Stop the process as the kubelet would; return its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(30)


class Stage:
    """A world of one test: its own namespace and node names, so that tests share a control plane."""

    def __init__(self, plane: ControlPlane, loop: Loop, folder: Path, prefix: str) -> None:
        self.plane = plane
        self.folder = folder
        self.prefix = prefix
        self.namespace = f"ns-{prefix}"
        self.schedulers: list[Scheduler] = []
        self._loop = loop
        self._nodes: list[str] = []
        self.kube = self._kube = loop.do(_opened(kubeconfig(plane.kubeconfig)))
        self.agents = Agents(self._kube)
        self.watcher = Watcher(self._kube)
        self._tasks = [loop.do(_started(part.run())) for part in (self.agents, self.watcher)]
        plane.namespace(self.namespace)

    def close(self) -> None:
        """Everything away; the rules held."""
        for scheduler in self.schedulers:
            if scheduler.process.poll() is None:
                scheduler.kill()
        self.do(_remove_pods(self._kube, self.namespace))
        for node in self._nodes:
            self.do(self._kube.delete(paths.node(node)))
        for task in self._tasks:
            self._loop.loop.call_soon_threadsafe(task.cancel)
        self.do(_ended(self._tasks))
        self.do(self._kube.__aexit__(None, None, None))

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the event loop."""
        return self._loop.do(work)

    def follow(self, path: str) -> list[Mapping[str, Any]]:
        """Return a list to which each version of the objects at `path` is added, until the stage is closed."""
        seen: list[Mapping[str, Any]] = []
        reflector = Reflector(self._kube, Selection(path), on_change=lambda change: seen.append(change.object))
        self._tasks.append(self.do(_started(reflector.run())))
        self.do(reflector.synced.wait())
        return seen

    # --- objects ------------------------------------------------------------------------------------------------------

    def node(self, name: str = "n1", gpus: int = 4, slots: int = 8, **fields: Any) -> str:
        """A node with GPUs; its whole name. `fields` are those of :meth:`inventory`."""
        whole = f"{self.prefix}-{name}"
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": whole,
                "labels": {"kubernetes.io/hostname": whole, "stage": self.prefix},
                "annotations": {INVENTORY: encode(self.inventory(whole, gpus, **fields))},
            },
        }
        allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110", "jupyter-gpu.io/slot": str(slots)}
        self.do(self._kube.create(paths.nodes(), body))
        self.do(
            self._kube.patch(
                paths.node(whole, "status"), {"status": {"allocatable": allocatable, "capacity": allocatable}}
            )
        )
        ready = {"spec": {"taints": None}}  # a new node is taken for not ready, and nothing else would say that it is
        self.do(self._kube.patch(paths.node(whole), ready))
        self._nodes.append(whole)
        return whole

    def inventory(self, node: str, gpus: int, unhealthy: tuple[int, ...] = (), **fields: Any) -> tuple[Gpu, ...]:
        """GPUs of a node, named by it."""
        usual = {"model": "Simulated GPU", "memory": 80 * GIB, **fields}
        return tuple(
            Gpu(
                uuid=f"GPU-{node}-{index}",
                index=index,
                device=Device(4, 40 + index),
                healthy=index not in unhealthy,
                health="broken by a test" if index in unhealthy else "",
                **usual,
            )
            for index in range(gpus)
        )

    def put_inventory(self, node: str, gpus: int, **fields: Any) -> None:
        """Report other GPUs, as the node's plugin does."""
        text = encode(self.inventory(node, gpus, **fields))
        self.do(self._kube.patch(paths.node(node, "status"), {"metadata": {"annotations": {INVENTORY: text}}}))

    def get_node(self, name: str) -> dict[str, Any]:
        """A node's JSON."""
        return self.do(self._kube.get(paths.node(name)))

    def delete_node(self, name: str) -> None:
        """It is gone."""
        self.do(self._kube.delete(paths.node(name)))

    def pod(
        self,
        name: str,
        node: str = "",
        requested: object = None,
        *,
        slots: int = 1,
        cpu: str = "0",
        annotations: Mapping[str, str] | None = None,
        owners: Sequence[Mapping[str, Any]] = (),
        **fields: Any,
    ) -> str:
        """Create a pod, bound to `node` or left to kube-scheduler; return its uid. `fields` are more of its spec."""
        words = dict(annotations or {})
        if requested is not None:
            words[REQUESTED] = requested if isinstance(requested, str) else json.dumps(requested)
        limits = {"jupyter-gpu.io/slot": str(slots)} if slots else {}
        spec: dict[str, Any] = {
            "containers": [
                {"name": "c", "image": "busybox:1", "resources": {"requests": {"cpu": cpu}, "limits": limits}}
            ],
            "nodeSelector": {"stage": self.prefix},
            "terminationGracePeriodSeconds": 0,
            **fields,
        }
        if node:
            spec["nodeName"] = node
        metadata = {"name": name, "annotations": words, "ownerReferences": list(owners)}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return objects.uid(self.do(self._kube.create(paths.pods(self.namespace), body)))

    def delete(self, name: str) -> None:
        """The pod is gone at once: no kubelet takes its time."""
        path = paths.pod(self.namespace, name)
        self.plane.kubectl("delete", "pod", name, "-n", self.namespace, "--grace-period=0", "--force", "--wait=false")
        until(lambda: self._missing(path), what=f"{name} to be gone")

    def missing(self, name: str) -> bool:
        """Whether there is no pod of that name."""
        return self._missing(paths.pod(self.namespace, name))

    def _missing(self, path: str) -> bool:
        try:
            self.do(self._kube.get(path))
        except NotFound:
            return True
        return False

    def request(self, name: str, wants: object) -> None:
        """Its user wishes: GPUs, or the whole annotation as text or JSON."""
        text = wants if isinstance(wants, str) else json.dumps(wants)
        self.annotate(name, **{REQUESTED: text})

    def annotate(self, name: str, **annotations: str | None) -> None:
        """Write annotations of a pod."""
        body = {"metadata": {"annotations": annotations}}
        self.do(self._kube.patch(paths.pod(self.namespace, name, "status"), body))

    def finish(self, name: str) -> None:
        """Its containers ended."""
        self.do(self._kube.patch(paths.pod(self.namespace, name, "status"), {"status": {"phase": "Succeeded"}}))

    def hold_open(self, uid: str, *uuids: str) -> None:
        """A process of the pod has these open from now on; none: it closes all."""

        async def change() -> None:
            self.agents.open[uid] = set(uuids)
            self.agents.poke()

        self.do(change())

    def pause(self, *nodes: str) -> None:
        """The agents of these nodes do nothing, those of all others do."""

        async def change() -> None:
            self.agents.paused = set(nodes)
            self.agents.poke()

        self.do(change())

    # --- what is so ---------------------------------------------------------------------------------------------------

    def get(self, name: str) -> dict[str, Any]:
        """A pod's JSON."""
        return self.do(self._kube.get(paths.pod(self.namespace, name)))

    def allocated(self, name: str) -> Allocated | None:
        """Return what was decided for a pod."""
        text = objects.annotation(self.get(name), ALLOCATED)
        return None if text is None else decode_allocated(text)

    def requested(self, name: str) -> str | None:
        """Return a pod's wish as it is written."""
        return objects.annotation(self.get(name), REQUESTED)

    def attached(self, name: str) -> Attached | None:
        """Return what a pod really has."""
        text = objects.annotation(self.get(name), ATTACHED)
        return None if text is None else decode_attached(text)

    def decisions(self, name: str) -> list[str]:
        """Every value that `allocated` of a pod had so far, once the watcher has seen the pod as it is now."""
        pod = self.get(name)
        uid, version = objects.uid(pod), int(objects.resource_version(pod))

        def seen() -> bool:
            versions = (objects.resource_version(one) for _, _, one in self.watcher.seen if objects.uid(one) == uid)
            return any(int(one) >= version for one in versions)

        until(seen, what=f"the watcher to see {name}")
        return self.watcher.writes(uid)

    def has(self, name: str) -> list[str]:
        """The GPUs that are both decided and attached, by their number on the node."""
        allocated, attached = self.allocated(name), self.attached(name)
        if not allocated or not attached or allocated.shares != attached.shares or attached.draining:
            return ["not settled"]
        return [share.uuid.rsplit("-", 1)[1] for share in allocated.shares]

    def until_count(self, name: str, count: int) -> list[str]:
        """Wait until a pod has so many GPUs, attached."""

        def settled() -> list[str] | None:
            has = self.has(name)
            return has if len(has) == count and has != ["not settled"] else None

        return (until(lambda: settled() is not None, what=f"{name} to have {count} GPUs") and settled()) or []

    def until_reason(self, name: str, reason: str) -> Allocated:
        """Wait until the scheduler answered so."""

        def answered() -> Allocated | None:
            found = self.allocated(name)
            return found if found and found.reason == reason else None

        found = until(answered, what=f"{name} to be {reason}")
        assert found
        return found

    def events(self, name: str) -> dict[str, str]:
        """Messages of a pod's Events by reason; the last of each."""
        found = self.do(self._kube.list(paths.events(self.namespace), fields=f"involvedObject.name={name}")).items
        return {item["reason"]: item["message"] for item in found}

    def until_event(self, name: str, reason: str) -> str:
        """Wait for an Event; its message."""
        return until(lambda: self.events(name).get(reason), what=f"the event {reason} of {name}") or ""

    def scheduler(
        self,
        *,
        lead: bool = True,
        user: str = "",
        settings: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Scheduler:
        """Start one, by default as an administrator, with a lease that is quick to change hands."""
        lease = {"name": self.prefix, "durationSeconds": 3, "renewSeconds": 2, "retrySeconds": 0.3}
        whole = {"lease": lease, "wakeSeconds": 0.3, "namespaces": [self.namespace], **(settings or {})}
        config = self.plane.kubeconfig_for(user) if user else self.plane.kubeconfig
        made = Scheduler(self.folder, config, whole, **(environ or {}))
        self.schedulers.append(made)
        return made.until_leading() if lead else made


class Watcher:
    """Sees every version of every pod, in order, and whether the rules held at each."""

    def __init__(self, kube: Kube) -> None:
        self._pods = Reflector(kube, Selection(paths.pods()), on_change=self._changed)
        self._known: dict[str, dict[str, Any]] = {}
        self._decided: dict[str, dict[str, int]] = {}
        self._real: dict[str, dict[str, int]] = {}
        self.seen: list[tuple[str, float, dict[str, Any]]] = []
        """Kind of change, when, and the pod."""
        self.decided_twice: list[str] = []
        """GPUs of which more than all was allocated at some instant."""
        self.attached_twice: list[str] = []
        """GPUs of which more than all was attached."""

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        await self._pods.run()

    def writes(self, uid: str, key: str = ALLOCATED) -> list[str]:
        """Every value that an annotation of a pod had."""
        values: list[str] = []
        for _, _, pod in self.seen:
            text = objects.annotation(pod, key)
            if objects.uid(pod) == uid and text is not None and (not values or values[-1] != text):
                values.append(text)
        return values

    def _changed(self, change: ObjectChange) -> None:
        self.seen.append((change.kind, time.monotonic(), change.object))
        now = self._pods.objects  # of one instant, which changes reported so far need not be
        for uid in self._known.keys() - now.keys():
            del self._known[uid], self._decided[uid], self._real[uid]
        for uid, pod in now.items():
            if self._known.get(uid) is not pod:
                self._known[uid] = pod
                self._decided[uid] = {} if objects.finished(pod) else _milli(pod, ALLOCATED)
                self._real[uid] = _milli(pod, ATTACHED)  # also of a finished pod: draining GPUs belong to no pod
        for records, broken in ((self._decided, self.decided_twice), (self._real, self.attached_twice)):
            for gpu in records.get(objects.uid(change.object), ()):
                if sum(record.get(gpu, 0) for record in records.values()) > 1000:
                    broken.append(gpu)


def _milli(pod: Mapping[str, Any], key: str) -> dict[str, int]:
    text = objects.annotation(pod, key)
    if text is None or not objects.node_name(pod):
        return {}
    found: dict[str, int] = {}
    try:
        state = decode_allocated(text) if key == ALLOCATED else decode_attached(text)
    except InvalidAnnotation:
        return {}
    leaving = [item.share for item in state.draining] if isinstance(state, Attached) else []
    for share in [*state.shares, *leaving]:
        found[share.uuid] = max(found.get(share.uuid, 0), share.milli)
    return found


async def _opened(credentials: Any) -> Kube:
    return await Kube(credentials).__aenter__()


async def _started(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


async def _remove_pods(kube: Kube, namespace: str) -> None:
    for pod in (await kube.list(paths.pods(namespace))).items:
        await kube.delete(paths.pod(namespace, objects.name(pod)), grace=0)
