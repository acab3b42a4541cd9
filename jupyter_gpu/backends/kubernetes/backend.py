"""The backend in a pod: it records the request in the pod, and follows what scheduler and node plugin make of it.

Nothing here decides or enforces. The pod's `requested` is written with the pod's own token, or by the hub's service
where pods have none; scheduler and node plugin answer in `allocated` and `attached`, which the node plugin streams over
the pod's socket, so that the pod need not be read at the API server. All of it is asynchronous I/O on the server's
event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu.backends import share_files
from jupyter_gpu.backends.base import Listener
from jupyter_gpu.backends.kubernetes.rules.pod_state import PodUpdate
from jupyter_gpu.backends.kubernetes.rules.views import (
    KnownState,
    Records,
    answered,
    candidates,
    compose,
    read,
    read_workers,
)
from jupyter_gpu.backends.view_feed import ViewFeed
from jupyter_gpu.kube import Credentials, Kube, in_cluster
from jupyter_gpu.kube.credentials import NoCredentials
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ATTACHED, Requested, Wish
from jupyter_gpu.model.errors import BackendUnavailable, GpuError, StaleGeneration
from jupyter_gpu.model.refusal import refusal
from jupyter_gpu.model.reservation import WishChange, resolve
from jupyter_gpu.model.view import GpuLoad, Sample, View

from . import events
from . import identity as identities
from .identity import Identity
from .node_socket import VARIABLE, NodeSocket, Unreachable
from .own_pod import ClusterPod, OwnPod
from .pod_workers import KnownWorkers
from .settings import Settings
from .silent_workers import Silence, SilentWorkers
from .trouble import Trouble
from .writer import RequestWriter

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import Details
    from jupyter_gpu.model.machine import Machine, Shown
    from jupyter_gpu.model.service import Peer

DEADLINE = 5.0
"""Seconds for one call of the API server."""
FIRST_ANSWER = 3.0
"""Seconds that the start waits for the node plugin's first answer."""
PATIENCE = 10.0
"""Seconds that a request waits for scheduler and node plugin; they go on without it."""
LAST_REQUEST = 4.0
"""Seconds that `stop` waits until the GPUs are given back."""

Job = Callable[[], Coroutine[Any, Any, None]]

_log = logging.getLogger(__name__)


class KubernetesBackend:
    """The `Backend` of the pod that the server runs in.

    ``limit``, ``fractions`` and ``priority`` are the fields of `Settings`; ``patience`` is how many seconds a
    request waits for the cluster. The rest is found in the pod.

    ``hub_service``: the address of the hub's service, which writes requests in place of the pod's own token. Empty: the
    pod has a token.
    """

    name = "kubernetes"

    def __init__(
        self,
        *,
        limit: int | None = None,
        fractions: tuple[int, ...] = (250, 500),
        priority: int = 0,
        hub_service: str = "",
        hub_token: str = "",
        credentials: Credentials | None = None,
        identity: Identity | None = None,
        socket: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._settings = Settings(limit=limit, fractions=fractions, priority=priority)
        self._hub = hub_service
        self._hub_token = hub_token
        self._credentials = credentials
        self._identity = identity
        self._path = socket
        self._patience = patience
        self._state = KnownState(instance=secrets.token_hex(8))
        self._feed = ViewFeed(compose(0, self._state, self._settings))
        self._moved = asyncio.Event()  # replaced each time the view changes
        self._known = asyncio.Event()  # set when the pod was seen
        self._trouble = Trouble(lambda why: self._see(cluster_trouble=why))
        self._writing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._node: NodeSocket | None = None
        self._writer: RequestWriter | None = None
        self._silence = SilentWorkers(lambda: self._see(silent=self._silence.silent))
        self.workers = KnownWorkers(self._say_keys)
        """The pod's workers on other nodes."""

    async def start(self) -> None:
        """Follow our pod, if `guard` does not do so yet."""
        if self._node is None:
            await self.guard()

    async def guard(self) -> None:
        """Find our pod and follow it. A temporary failure of the cluster is shown in the view."""
        path = self._socket()
        try:
            own, more = await (self._by_hub() if self._hub else self._by_token())
            pod = await own.fetch_first()
        except NoCredentials as error:
            raise _no_way(error) from None
        except BaseException:
            await self._stack.aclose()
            raise
        uid = objects.uid(pod) or own.uid
        self._state = replace(self._state, instance=f"{uid[:47]}-{secrets.token_hex(8)}".removeprefix("-"))
        self._node = NodeSocket(path, self._heard, self._on_update)
        self._writer = RequestWriter(own, lambda: self._state.pod, self._adopt, self._patience)
        if pod is not None:
            self._adopt(pod)
        for job in (self._node.run(), own.reconnect(self._adopt), *(job() for job in more)):
            self._run(job)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER):
                await self._node.known.wait()
        self._publish()

    def await_guard(self) -> None:
        """Wait for nothing: the node plugin closed the pod's GPUs before its first container started."""

    def view(self) -> View:
        """Return the latest view; never blocks."""
        return self._feed.latest

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See `Backend`."""
        return self._feed.subscribe(listener)

    async def request(self, wish: Wish | WishChange, generation: int | None = None) -> View:
        """Record a wish; return the view when cluster and node have answered. See `Backend`."""
        writer = self._ready()
        async with self._writing:  # one after the other: what came first is recorded first
            error = self._refusal(resolve(wish, self._records().requested), generation)
            if error is not None:
                raise error
            taken = bool(self._state.node and self._state.node.taken)
            recorded = await writer.record(
                lambda now: self._with_priority(wish, now), generation, anew=taken
            )  # the same again gets back what was taken away
        await self._until_answered(recorded.generation)
        return self._feed.latest

    async def sample(self) -> Sample:
        """Sample the load of the pod's GPUs now, and their holders; no loads while the node plugin is away."""
        self._ready()
        assert self._node is not None
        try:
            use = await self._node.sample()
        except Unreachable:  # the view says so
            self._node.refresh()
            return Sample(time=time.time(), loads={})
        self._state = replace(self._state, holders=use.holders)
        self._publish()
        nothing = GpuLoad(None, None)
        loads = {card.gpu.uuid: use.loads.get(card.gpu.uuid, nothing) for card in self._feed.latest.gpus}
        now = time.time()  # to show in charts; no decision sees it
        shares = await asyncio.to_thread(
            share_files.read, self._socket().parent / "shares", self._fractions(), int(now * 1000)
        )
        return Sample(time=now, loads=loads, shares=shares)

    async def details(self) -> Details:
        """Return limits, rates and memory by process of the pod's GPUs; none while the node plugin is away or older."""
        from jupyter_gpu.model.details import Details

        self._ready()
        assert self._node is not None
        try:
            found = await self._node.details()
        except Unreachable:
            found = {}
        mine = {card.gpu.uuid for card in self._feed.latest.gpus}
        return Details(time.time(), {uuid: one for uuid, one in found.items() if uuid in mine})

    async def machine(self, shown: Shown) -> Machine:  # noqa: ARG002 - a pod never sees the other pods
        """Return the sums of the node."""
        from jupyter_gpu.model.machine import Machine, Shown

        self._ready()
        assert self._node is not None
        try:
            return Machine(Shown.TOTALS, await self._node.totals())
        except Unreachable as error:
            raise BackendUnavailable(
                f"The GPU program of this node does not tell what is free on it: {error}. Try again later."
            ) from None

    def _fractions(self) -> tuple[str, ...]:
        """Return the uuids of the GPUs of which the pod has a time share that is enforced."""
        attached, node = self._records().attached, self._state.node
        if attached is None or node is None or node.unenforced:
            return ()
        return tuple(share.uuid for share in attached.shares if not share.exclusive)

    async def stop(self) -> None:
        """Release all GPUs: a server that ends needs none, even if its pod stays. Safe to call twice."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        requested = read(self._state.pod).requested
        if requested and requested.milli and not self._state.gone:
            try:
                async with asyncio.timeout(LAST_REQUEST), self._writing:
                    await writer.record(lambda _: Wish(0), None)
            except (GpuError, TimeoutError) as error:
                _log.warning("The GPUs are given back when the pod ends, and not now: %s", error)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._trouble.silence()
        self._silence.see(frozenset())
        await self._stack.aclose()
        self._wake()

    # -- start ---------------------------------------------------------------------------------------------------------

    def _socket(self) -> Path:
        path = self._path or Path(os.environ.get(VARIABLE, ""))
        if not path.is_absolute():
            raise BackendUnavailable(
                f"{VARIABLE} is not set: this container has no GPU slot. Add jupyter-gpu.io/slot: 1 to its "
                "resources.limits and create the pod again, on a node where the GPU program of the cluster runs."
            )
        return path

    async def _by_token(self) -> tuple[OwnPod, list[Job]]:
        """Open the way to the pod with its own token; return it with what else is followed that way."""
        credentials = self._credentials or in_cluster()
        identity = self._identity or identities.here(credentials)
        kube = await self._stack.enter_async_context(Kube(credentials, deadline=DEADLINE))
        own = ClusterPod(kube, identity, lambda why: self._trouble.set("server", why))
        return own, [lambda: self._follow_events(kube, identity.namespace)]

    async def _by_hub(self) -> tuple[OwnPod, list[Job]]:
        """Open the way through the hub's service; Events can't be followed that way."""
        from .hub_pod import HubPod, HubService, token_here

        service = HubService(self._hub, self._hub_token or token_here(), deadline=DEADLINE)
        await self._stack.enter_async_context(service)
        uid = self._identity.uid if self._identity else os.environ.get("POD_UID", "")
        return HubPod(service, uid, lambda why: self._trouble.set("server", why)), []

    def _run(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(job)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.critical(
                "Following the cluster failed: the state of the GPUs is not updated any more.", exc_info=error
            )
            self._see(cluster_trouble="an error inside this server, whose log says more; restart it")

    def _ready(self) -> RequestWriter:
        if self._writer is None:
            raise BackendUnavailable("GPUs are not available: the server is starting or stopping. Try again later.")
        return self._writer

    # -- requests ------------------------------------------------------------------------------------------------------

    def _with_priority(self, wish: Wish | WishChange, current: Requested | None) -> Wish:
        wish = resolve(wish, current)
        return (
            replace(wish, priority=self._settings.priority)
            if wish.priority is None and self._settings.priority
            else wish
        )

    def _refusal(self, wish: Wish, generation: int | None) -> GpuError | None:
        records = self._records()
        if generation is not None and generation != records.generation:
            return StaleGeneration(current=records.generation)
        return refusal(
            wish,
            records.requested,
            limit=self._settings.limit,
            of_user=records.allocated.limit if records.allocated else None,
            gpus=candidates(wish, self._node.node if self._node else None, records.workers),
        )

    async def _until_answered(self, generation: int) -> None:
        end = asyncio.get_running_loop().time() + self._patience
        while self._writer is not None and not self._state.gone and not answered(self._records(), generation):
            try:
                async with asyncio.timeout_at(end):
                    await self._moved.wait()
            except TimeoutError:
                return

    def _records(self) -> Records:
        return read(self._state.pod)

    # -- what is seen --------------------------------------------------------------------------------------------------

    async def _follow_events(self, kube: Kube, namespace: str) -> None:
        await self._known.wait()
        await events.follow(kube, namespace, objects.uid(self._state.pod), lambda found: self._see(events=found))

    def _adopt(self, pod: Mapping[str, Any]) -> None:
        """Take in a state of the pod, from the node plugin or from a write; they may arrive out of order."""
        known = self._state.pod
        if known is None or (objects.uid(pod) == objects.uid(known) and objects.newer(pod, known)):
            self._state = replace(self._state, pod=pod, silent=self._silent(pod))
            self._known.set()
            self.workers.see(pod)
            update = objects.annotation(pod, ATTACHED) != objects.annotation(known, ATTACHED)
            if self._node and update:  # by the node plugin; asking it earlier would only delay its work
                self._node.refresh()
            self._publish()

    def _silent(self, pod: Mapping[str, Any]) -> frozenset[Silence]:
        """Return the workers of ``pod`` of which nothing was heard for too long."""
        found = read_workers(pod)
        self._silence.see(found.waited_for if found else frozenset())
        return self._silence.silent

    async def _say_keys(self, peer: Peer) -> None:
        if self._node is None:
            raise Unreachable("the server is starting")
        await self._node.put(peer)

    def _see(self, **changes: Any) -> None:
        self._state = replace(self._state, **changes)
        self._publish()

    def _on_update(self, update: PodUpdate) -> None:
        """Take in a report of the node plugin about our pod."""
        self._trouble.set("node", update.trouble)
        if update.gone:
            self._see(gone=True)
        if update.pod is not None:
            self._adopt(update.pod)

    def _heard(self) -> None:
        assert self._node is not None
        if self._node.trouble:  # no message comes when that is over
            self._trouble.set("node", "")
        self._see(node=self._node.node, node_trouble=self._node.trouble)

    def _publish(self) -> None:
        view = compose(self._feed.latest.version, self._state, self._settings)
        if view == self._feed.latest:
            return
        self._wake()
        self._feed.publish(replace(view, version=view.version + 1))

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _no_way(error: NoCredentials) -> BackendUnavailable:
    return BackendUnavailable(
        f"The cluster can't be asked. {error} Where pods have no token, set GpuExtension.hub_service to the address of "
        "the service of GPU limits of the JupyterHub."
    )
