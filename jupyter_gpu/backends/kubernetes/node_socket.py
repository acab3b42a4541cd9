"""The client of the node plugin, over the pod's socket: the node's GPUs, the holders of the pod's own, the pod's state.

One connection stays open, over which the plugin sends each new state of the pod. It ends when the plugin dies, so no
polling is needed to notice that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_gpu.backends.kubernetes.rules.pod_state import PodUpdate, read_pod_update
from jupyter_gpu.backends.kubernetes.rules.views import Node
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import MAX_GPUS, Gpu, Holder, read_uuid
from jupyter_gpu.model.view import GpuLoad

if TYPE_CHECKING:  # loaded with the first request for it, not when a server starts
    from jupyter_gpu.model.details import GpuDetails
    from jupyter_gpu.model.machine import Totals
    from jupyter_gpu.model.service import Peer

VARIABLE = "JUPYTER_GPU_NODE_SOCKET"
"""Environment variable that names the socket; set by the node plugin for the containers it serves."""
MAX_ANSWER = 2**20
DEADLINE = 6.0
"""Seconds for an answer; the plugin has five of its own."""
OLDER = "the GPU program of this node is older than that"
SILENT = "it does not tell the state of this pod; it may be older than this server, and has to be upgraded"
FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
"""Seconds between attempts to reach a plugin that is away."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Unreachable(Exception):
    """The plugin gave no good answer; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """The loads and holders of the pod's GPUs at one moment, by uuid."""

    loads: Mapping[str, GpuLoad]
    holders: Mapping[str, tuple[Holder, ...]]


class NodeSocket:
    """The node as the plugin describes it, kept up to date by `run`; ``changed`` is called when it changes.

    ``on_update`` is called with each state of the pod that the plugin reports.
    """

    def __init__(
        self, path: Path, changed: Callable[[], None], on_update: Callable[[PodUpdate], None] = lambda _: None
    ) -> None:
        self._path = path
        self._changed = changed
        self._on_update = on_update
        self._again = asyncio.Event()
        self.node: Node | None = None
        """The last answer; it stays while the plugin is away."""
        self.trouble = ""
        """Why the plugin cannot be reached; empty if it can."""
        self.known = asyncio.Event()
        """Set when the plugin has answered for the first time, or could not be reached."""

    def refresh(self) -> None:
        """Ask again soon: the pod changed, and perhaps its node, too."""
        self._again.set()

    async def run(self) -> None:
        """Keep `node` up to date, until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._connected() as (reader, writer):
                    self._again.clear()
                    node = _read(read_node, await _ask(reader, writer, "node"))
                    first = _read(read_pod_update, await _asked_for_pod(reader, writer))
                    self._on_update(first)
                    self._tell(node, "")
                    pause = FIRST_PAUSE
                    await self._stay(reader)
            except Unreachable as error:
                self._tell(self.node, str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)

    async def sample(self) -> NodeUse:
        """Return load and holders now. Raises `Unreachable`."""
        async with self._connected() as (reader, writer):
            return _read(read_use, await _ask(reader, writer, "sample"))

    async def details(self) -> Mapping[str, GpuDetails]:
        """Return limits, rates and memory by process of the pod's GPUs. Raises `Unreachable`."""
        async with self._connected() as (reader, writer):
            return _read(_read_details, await _ask(reader, writer, "details"))

    async def totals(self) -> Totals:
        """Return the free part of the node and the number of waiting pods. Raises `Unreachable`."""
        from jupyter_gpu.model.machine import Totals

        async with self._connected() as (reader, writer):
            return _read(Totals.from_json, await _ask(reader, writer, "totals"))

    async def put(self, peer: Peer) -> None:
        """Say the pod's own public keys. Raises `Unreachable`, also if they are not taken."""
        async with self._connected() as (reader, writer):
            answer = await _exchange(reader, writer, {"put": "peer", **peer.to_json()})
            _read(lambda body: strict.required(strict.an_object(body, "put"), "put", strict.one_of("peer")), answer)

    async def _learn(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._again.clear()
        self._tell(_read(read_node, await _ask(reader, writer, "node")), "")

    async def _stay(self, reader: asyncio.StreamReader) -> None:
        """Listen until the connection ends. Requests meanwhile use another connection."""
        listening = asyncio.ensure_future(self._listen(reader))
        try:
            while not listening.done():
                again = asyncio.ensure_future(self._again.wait())
                try:
                    await asyncio.wait((listening, again), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    again.cancel()
                if self._again.is_set():
                    async with self._connected() as (other, writer):
                        await self._learn(other, writer)
            listening.result()
        finally:
            listening.cancel()
            with contextlib.suppress(Unreachable, asyncio.CancelledError):
                await listening

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Pass on each state that arrives. Raises `Unreachable` at the end."""
        while True:
            self._on_update(_read(read_pod_update, await _line(reader)))

    @contextlib.asynccontextmanager
    async def _connected(self) -> Any:
        try:
            async with asyncio.timeout(DEADLINE):
                reader, writer = await asyncio.open_unix_connection(str(self._path), limit=MAX_ANSWER)
        except OSError as error:  # TimeoutError is one
            raise Unreachable(error.strerror or "it took too long") from None
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _tell(self, node: Node | None, trouble: str) -> None:
        news = (node, trouble) != (self.node, self.trouble)
        if trouble and not self.trouble:
            _log.warning("The GPU program of this node does not answer: %s. It is tried again.", trouble)
        self.node, self.trouble = node, trouble
        self.known.set()
        if news:
            self._changed()


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str) -> Any:
    return await _exchange(reader, writer, {"get": what})


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: Mapping[str, Any]) -> Any:
    try:
        async with asyncio.timeout(DEADLINE):
            writer.write(strict.dumps(body).encode() + b"\n")
            await writer.drain()
            return await _line(reader)
    except TimeoutError:
        raise Unreachable("it took too long") from None
    except OSError as error:
        raise Unreachable(str(error)) from None


async def _asked_for_pod(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Any:
    """Return the first state of the pod; more follow on this connection."""
    answer = await _ask(reader, writer, "pod")
    if isinstance(answer, Mapping) and "error" in answer:
        raise Unreachable(SILENT)
    return answer


async def _line(reader: asyncio.StreamReader) -> Any:
    try:
        line = await reader.readline()
    except (OSError, ValueError) as error:  # ValueError: a line that is too long
        raise Unreachable(str(error)) from None
    if not line:
        raise Unreachable("it hung up")
    try:
        return strict.loads(line, MAX_ANSWER)
    except strict.FieldError as error:
        raise Unreachable(f"its answer can't be read: {error}") from None


def _read(read: Callable[[Any], T], answer: Any) -> T:
    try:
        problem = answer.get("error") if isinstance(answer, Mapping) else None
        if problem is not None:
            raise Unreachable(strict.printable(str(problem), 300))
        return read(answer)
    except strict.FieldError as error:
        raise Unreachable(f"its answer can't be read: {error}") from None


def read_node(answer: Any) -> Node:
    """Checked; raises `FieldError`."""
    body = strict.an_object(answer, "node")
    return Node(
        name=strict.required(body, "node", strict.text(253)),
        simulated=strict.required(body, "simulated", strict.boolean),
        gpus=tuple(strict.required(body, "gpus", strict.list_of(Gpu.from_json, MAX_GPUS))),
        **_read_shares(body.get("shares")),
    )


def _read_shares(value: Any) -> dict[str, Any]:
    """Read what the node reports on the pod's time shares. A node that reports nothing does not enforce them."""
    if value is None:
        return {"unenforced": OLDER}
    body = strict.an_object(value, "shares")
    problem = body.get("problem")
    taken = strict.an_object(body.get("taken"), "taken")
    words = strict.label(1024)
    return {
        "unenforced": words(problem, "problem") if problem != "" else "",
        "taken": {read_uuid(uuid, "taken"): words(why, "taken") for uuid, why in taken.items()},
    }


def _read_details(answer: Any) -> Mapping[str, GpuDetails]:
    from jupyter_gpu.model.details import read_all

    return read_all(strict.an_object(answer, "details").get("gpus"), "gpus")


def read_use(answer: Any) -> NodeUse:
    """Checked; raises `FieldError`."""
    body = strict.an_object(answer, "sample")
    loads = strict.an_object(body.get("loads"), "loads")
    holders = strict.an_object(body.get("holders"), "holders")
    read_holders = strict.list_of(Holder.from_json, 1024)
    return NodeUse(
        {read_uuid(uuid, "loads"): GpuLoad.from_json(load) for uuid, load in loads.items()},
        {read_uuid(uuid, "holders"): tuple(read_holders(found, "holders")) for uuid, found in holders.items()},
    )
