"""A cluster around the backend: the API server is real, and so are the decisions.

What is played is what carries them: a loop that reads pods, calls the scheduler's `decide` and the node plugin's
`plan`, and writes the answers; and the socket of each pod. It lives in a thread with a loop of its own, so that nothing
of it waits for the backend or holds it up.
"""

import asyncio
import json
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from jupyter_gpu.backends.kubernetes import KubernetesBackend
from jupyter_gpu.backends.kubernetes.identity import Identity
from jupyter_gpu.backends.kubernetes.rules.views import read
from jupyter_gpu.kube import Conflict, Kube, KubeError, ObjectChange, Reflector, Selection, in_cluster, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, Allocated, Attached, encode
from jupyter_gpu.model.gpu import Device, Gpu, Holder
from jupyter_gpu.model.limits.owner import USERNAME, Owner
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu_hub.rules.usage import SERVER
from jupyter_gpu_node.agent.pod_events import PodEvents
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB
from tests.cluster.testbed import ControlPlane, Existing, existing
from tests.hub_service.world import HUB, World

T = TypeVar("T")

NODE = "n1"
OWNER = Owner("User", "ann", "jhub")
"""Owner of all pods of a stage."""
ML = Source(SourceKind.GROUP, "ml", "root", 1777800000)
"""A limit of a group."""
SECONDS = 60.0
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
RULES = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
"""All that a notebook may do."""
EVENTS = {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]}


def gpus(count: int) -> tuple[Gpu, ...]:
    """Return the GPUs of the node."""
    return tuple(
        Gpu(f"GPU-{NODE}-{index}", index, "Simulated GPU", 80 * GIB, Device(4, 60 + index), simulated=True)
        for index in range(count)
    )


class PodSocket:
    """The socket that the node plugin serves to one pod."""

    def __init__(self, stage: "Stage", uid: str, path: Path) -> None:
        self._stage = stage
        self._uid = uid
        self.path = path
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        self.answers: list[bytes] = []
        """Said instead of the truth, one after the other."""

    async def open(self) -> None:
        """Begin to serve."""
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def close(self) -> None:
        """End as a plugin that was killed: connections end, the socket stays."""
        if self._server is None:
            return
        server, self._server = self._server, None
        aside = self.path.rename(self.path.with_suffix(".aside"))
        await asyncio.sleep(0.02)  # asyncio loses a connection that it accepts just when its server is closed
        server.close()
        aside.rename(self.path)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0.02)  # what was aborted ends

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while line := await reader.readline():
                what = json.loads(line)["get"]
                self.asked.append(what)
                if what == "pod":
                    await self._follow(writer)
                answer = {"node": self._node, "details": self._details, "totals": self._totals}.get(
                    what, self._sample
                )()
                writer.write(self.answers.pop(0) if self.answers else json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _follow(self, writer: asyncio.StreamWriter) -> None:
        async with aclosing(self._stage.news.follow(self._uid)) as states:  # type: ignore[type-var]
            async for state in states:
                writer.write(json.dumps(state).encode() + b"\n")
                await writer.drain()

    def _node(self) -> dict[str, Any]:
        shares = {"problem": self._stage.unenforced, "taken": self._stage.taken.get(self._uid, {})}
        gpus = [gpu.to_json() for gpu in self._stage.gpus]
        return {"node": NODE, "simulated": True, "gpus": gpus, "shares": shares}

    def _totals(self) -> dict[str, Any]:
        return {"gpus": len(self._stage.gpus), "free": 1000, "used": 2000, "waiting": 3}

    def _details(self) -> dict[str, Any]:
        attached = self._stage.attached.get(self._uid)
        return {"gpus": {share.uuid: {"slowdown": 90} for share in (attached.shares if attached else ())}}

    def _sample(self) -> dict[str, Any]:
        attached = self._stage.attached.get(self._uid)
        shares = attached.shares if attached else ()
        holders = self._stage.holders.get(self._uid, {})
        return {
            "loads": {share.uuid: {"utilisation": 50.0, "memory": GIB} for share in shares},
            "holders": {uuid: [holder.to_json() for holder in found] for uuid, found in holders.items()},
        }


class Stage:
    """One node with GPUs, in a namespace of its own; its methods may be called from any thread but its own."""

    def __init__(
        self, plane: ControlPlane | Existing, count: int = 3, *, events: bool = True, hub: World | None = None
    ) -> None:
        self.plane = plane
        self.hub = hub
        """The hub whose service writes the requests of all servers here; ``None``: they have tokens of their pods."""
        self.namespace = f"jupyter-gpu-test-{uuid.uuid4().hex[:8]}"
        self.gpus = gpus(count)
        self.holders: dict[str, dict[str, tuple[Holder, ...]]] = {}
        """Holders of each GPU, by the pod's uid."""
        self.taken: dict[str, dict[str, str]] = {}
        """Which shares were taken away and why, by the pod's uid."""
        self.unenforced = ""
        """Why shares are only counted."""
        self.states: dict[str, PodState] = {}
        self.attached: dict[str, Attached] = {}
        """State that the node plugin has brought about, reported or not yet, by the pod's uid."""
        self.sockets: dict[str, PodSocket] = {}
        self.news = PodEvents()
        """States of pods that the node plugin streams."""
        self._objects: dict[str, dict[str, Any]] = {}
        self.limits: OwnerLimits | None = None
        """Limits of the owner of all pods here; ``None``: no limits are in force."""
        self._over_since: float | None = None
        self.deciding = True
        """Whether the scheduler works."""
        self.attaching = True
        """Whether the node plugin's agent works."""
        self._rules = [*RULES, *([EVENTS] if events else [])]
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="stage")
        self._stack = AsyncExitStack()
        self._work: asyncio.Event

    def __enter__(self) -> "Stage":
        self._folder = tempfile.TemporaryDirectory(prefix="jg-")
        self._thread.start()
        self.do(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.do(self._close())
            self.do(asyncio.sleep(0))  # what was closed is gone
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
            self._folder.cleanup()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done by the stage; its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)

    async def asking(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the same for a caller with an event loop of its own."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def do_soon(self, work: Callable[[], None]) -> None:
        """Do the same for a call that takes no time; without a result."""
        self.loop.call_soon_threadsafe(work)

    def reconcile(self) -> None:
        """Make scheduler and agent reconcile: something changed that no watch reports."""
        self.loop.call_soon_threadsafe(self._work.set)

    def make(self, name: str = "", **options: Any) -> KubernetesBackend:
        """A new pod on the node, and the backend of the server in it."""
        name = name or f"p-{uuid.uuid4().hex[:8]}"
        uid, folder = self.do(self.pod(name))
        return self.backend(name, uid, folder, **options)

    @property
    def port(self) -> int:
        """Port of the side that servers ask: the API server, or the hub's service."""
        if self.hub is not None:
            return self.hub.service.port
        assert isinstance(self.plane, ControlPlane)
        return self.plane.layout.port

    def backend(self, name: str, uid: str, folder: Path, **options: Any) -> KubernetesBackend:
        """A server in that pod; ``port`` leads to the side that it asks by another way."""
        if self.hub is not None:
            return self._by_hub(name, uid, folder, **options)
        host, port = self.plane.endpoint
        if "port" in options:
            host, port = "127.0.0.1", options.pop("port")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
        return KubernetesBackend(
            credentials=in_cluster(folder, environ),
            identity=Identity(self.namespace, name, uid),
            socket=folder / "node.sock",
            **{"patience": SECONDS, **options},
        )

    def _by_hub(self, name: str, uid: str, folder: Path, **options: Any) -> KubernetesBackend:
        """A server with the token that a hub gives to it, and no other."""
        assert self.hub is not None
        port = options.pop("port", self.port)
        server = f"access:servers!server={OWNER.name}/{self._server(name)}"
        return KubernetesBackend(
            hub_service=f"http://127.0.0.1:{port}/services/gpu/",
            hub_token=self.hub.token(OWNER.name, [server, "access:services!service=gpu"]).token,
            identity=Identity("", "", uid),
            socket=folder / "node.sock",
            **{"patience": SECONDS, **options},
        )

    def _server(self, pod: str) -> str:
        """Return the name of the server in a pod: pods of other stages may have the same name."""
        return f"{self.namespace}-{pod}"

    async def pod(self, name: str, annotations: Mapping[str, str] | None = None) -> tuple[str, Path]:
        """Make a pod that runs on the node; its uid, and the folder of its token and its socket."""
        server = {USERNAME: OWNER.name, "jupyter-gpu.io/hub": HUB, SERVER: self._server(name)} if self.hub else {}
        slot = {"resources": {"limits": {objects.SLOT: "1"}}} if self.hub else {}
        body = {
            "metadata": {"name": name, "annotations": {**server, **(annotations or {})}},
            "spec": {"containers": [{"name": "c", "image": "i", **slot}], "nodeName": NODE},
        }
        uid = objects.uid(await self.kube.create(paths.pods(self.namespace), body))
        folder = Path(self._folder.name) / uid
        folder.mkdir()
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default/token"
        answer = await self.kube.create(account, {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}})
        (folder / "token").write_text(answer["status"]["token"])
        (folder / "ca.crt").write_bytes(self.plane.ca)
        (folder / "namespace").write_text(self.namespace)
        self.sockets[uid] = PodSocket(self, uid, folder / "node.sock")
        await self.sockets[uid].open()
        return uid, folder

    async def annotate(self, name: str, **annotations: str | None) -> None:
        """Write annotations as ``kubectl annotate`` does; keys without their prefix."""
        body = {"metadata": {"annotations": {f"jupyter-gpu.io/{key}": text for key, text in annotations.items()}}}
        await self.kube.patch(paths.pod(self.namespace, name), body)

    # -- the thread ----------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._work = asyncio.Event()
        self.kube = await self._stack.enter_async_context(Kube(kubeconfig(self.plane.kubeconfig)))
        self._pods = Reflector(self.kube, Selection(paths.pods(self.namespace)), on_change=self._changed)
        named = {"name": self.namespace, "labels": dict(existing.OURS)}
        await self.kube.create("/api/v1/namespaces", {"metadata": named})
        account = {"kind": "ServiceAccount", "name": "default", "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "notebook"}
        await asyncio.gather(
            self._account(),
            self.kube.create(
                f"{RBAC}/{self.namespace}/roles", {"metadata": {"name": "notebook"}, "rules": self._rules}
            ),
            self.kube.create(
                f"{RBAC}/{self.namespace}/rolebindings",
                {"metadata": {"name": "notebook"}, "subjects": [account], "roleRef": role},
            ),
        )
        self._tasks = [asyncio.create_task(self._pods.run()), asyncio.create_task(self._play())]

    async def _account(self) -> None:
        """Create the pods' service account, unless a controller was faster."""
        with suppress(Conflict):
            path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
            await self.kube.create(path, {"metadata": {"name": "default"}})

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.result()
        for each in self.sockets.values():
            await each.close()
        await self._stack.aclose()

    def _changed(self, change: ObjectChange) -> None:
        if change.kind == "removed":
            self.states.pop(objects.uid(change.object), None)
            self.news.removed(objects.uid(change.object))
        else:
            self._know(change.object)
        self._work.set()

    def _know(self, pod: dict[str, Any]) -> None:
        uid = objects.uid(pod)
        self.news.update(pod)
        if uid in self._objects and not objects.newer(pod, self._objects[uid]):
            return  # what we wrote ourselves comes by the watch as well
        records = read(pod)
        self.states[uid] = PodState(uid, NODE, records.requested, records.allocated, records.attached)
        self._objects[uid] = pod

    async def _play(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            with suppress(KubeError):
                if self.deciding:
                    await self._decide()
                if self.attaching:
                    await self._attach()

    async def _decide(self) -> None:
        snapshot = ClusterSnapshot()
        snapshot.put_node(NODE, self.gpus)
        for state in self.states.values():
            snapshot.put_pod(replace(state, owner=OWNER))
        if self.limits is not None:
            self._limit(snapshot, self.limits)
        for decision in decide(snapshot, NODE):
            await self._write(decision.uid, ALLOCATED, decision.allocated)

    def _limit(self, snapshot: ClusterSnapshot, limits: OwnerLimits) -> None:
        """Apply the terms of the pods' owner, as the scheduler does before it decides."""
        pods, now = snapshot.owned(OWNER), time.time()
        found = terms(snapshot, pods, limits, stored=self._over_since, now=now)
        self._over_since = found.grace.since
        for pod in pods:
            snapshot.put_pod(found.pods[pod.uid].applied(pod))
        if found.grace.tolerated and found.grace.give_back_at is not None:
            self.loop.call_later(found.grace.give_back_at - now, self._work.set)

    def limit(self, milli: int | None, source: Source = ML, *, grace: float = 0.0) -> None:
        """Limit all pods together to ``milli``, ``None``: unlimited, as if the scheduler saw a changed limit."""
        maximum = None if milli is None else Maximum(milli, source)
        self.limits = OwnerLimits(gpus=maximum, grace=grace, source=source)
        self.reconcile()

    async def _attach(self) -> None:
        broken = frozenset(gpu.uuid for gpu in self.gpus if not gpu.healthy)
        for uid, state in tuple(self.states.items()):
            if state.allocated is None:
                continue
            allowed = frozenset(share.uuid for share in state.allocated.shares)
            seen = Observation(allowed, self.holders.get(uid, {}))
            after = plan(state.allocated, state.attached, seen, broken).attached
            self.attached[uid] = after
            if after != state.attached:
                await self._write(uid, ATTACHED, after)

    async def _write(self, uid: str, key: str, value: Allocated | Attached) -> None:
        pod = self._objects[uid]
        metadata: dict[str, Any] = {"uid": uid, "annotations": {key: encode(value)}}
        if key == ALLOCATED:
            metadata["resourceVersion"] = objects.resource_version(pod)
        with suppress(Conflict):  # what is newer comes by the watch
            path = paths.pod(self.namespace, objects.name(pod), "status")
            self._know(await self.kube.patch(path, {"metadata": metadata}))
            self._work.set()
