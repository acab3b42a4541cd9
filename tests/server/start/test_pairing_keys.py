"""The keys of a notebook for its workers: said until recorded, and for code of this server alone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jupyter_gpu.backends.kubernetes.node_socket import NodeSocket
from jupyter_gpu.backends.kubernetes.pod_workers import KnownWorkers
from jupyter_gpu.backends.kubernetes.rules.pod_state import PodUpdate
from jupyter_gpu.common import rendezvous
from jupyter_gpu.kernel import blocks
from jupyter_gpu.model.annotations import ATTACHED, WORKER, Attached, encode
from jupyter_gpu.model.service import Peer, Relation, Service, WorkerPart
from jupyter_gpu.server import pairing_keys
from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu.server.keys import WORKER_KERNELS
from jupyter_gpu.server.pairing_keys import PairingKeys
from jupyter_gpu.server.reservation_owners import ProcessOwners
from jupyter_gpu.server.worker_kernels import WorkerKernels
from tests.model.test_service import KEY
from tests.server.conftest import Call
from tests.worker.pods import Plugin, plugin

READY = WorkerPart("w1", "node2", 1000, Relation.SWITCH, "p", "u", "10.0.2.7", 47100, KEY)


def named(*workers: WorkerPart) -> str:
    return encode(Service(1, workers))


@asynccontextmanager
async def keys_of(known: Plugin) -> AsyncIterator[PairingKeys]:
    """Those of a server in the pod."""
    async with workers_of(known) as workers:
        keys = PairingKeys(workers)
        try:
            yield keys
        finally:
            await keys.stop()


@asynccontextmanager
async def workers_of(known: Plugin) -> AsyncIterator[KnownWorkers]:
    """The workers that a server in the pod knows."""

    def see(update: PodUpdate) -> None:
        if update.pod is not None:
            workers.see(update.pod)

    node = NodeSocket(known.path, lambda: None, see)
    workers = KnownWorkers(node.put)
    following = asyncio.create_task(node.run())
    try:
        yield workers
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.fixture
def known() -> Any:
    """A node plugin that serves the pod of a notebook."""
    with plugin() as made:
        made.annotations.pop(WORKER)
        yield made


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_keys_are_made_and_said_for_each_worker(known: Plugin) -> None:
    """As soon as a worker is named; a way has the pair that was said. A worker that is gone has no key."""
    async with keys_of(known) as keys:
        assert keys.ways() == {"workers": []}
        known.annotate(service=named(READY))
        await until(lambda: keys.ways()["workers"])
        (way,) = keys.ways()["workers"]
        await until(lambda: known.said == [Peer(keys=(("w1", way["public"]),))])
        known.annotate(service=named(READY, WorkerPart("w2", "node3")))
        await until(lambda: known.said and len(known.said[-1].keys) == 2)
        assert dict(known.said[-1].keys)["w1"] == way["public"]
        known.annotate(service="{}")
        await until(lambda: known.said[-1] == Peer())
        assert keys.ways() == {"workers": []}


async def test_server_that_starts_anew_says_other_keys(known: Plugin) -> None:
    """Those of the one before are replaced, also where its workers have ended."""
    known.annotate(service=named(READY), attached=encode(Attached(1, peer=Peer(keys=(("w1", KEY),)))))
    async with keys_of(known):
        await until(lambda: known.said)
        assert dict(known.said[0].keys)["w1"] != KEY
    known.annotate(service=named())
    async with keys_of(known):
        await until(lambda: known.said[-1] == Peer())


async def test_keys_are_said_until_they_are_recorded(known: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node plugin may be away, refuse them, or lose them."""
    monkeypatch.setattr(pairing_keys, "FIRST_PAUSE", 0.05)
    known.takes = False
    async with keys_of(known):
        known.annotate(service=named(READY))
        await until(lambda: len(known.said) >= 2)
        await asyncio.to_thread(known.stop)
        await asyncio.to_thread(known.start)
        known.takes = True
        await until(lambda: ATTACHED in known.annotations)
        said = len(known.said)
        known.annotate(attached=encode(Attached(2)))
        await until(lambda: len(known.said) > said)


@asynccontextmanager
async def kernels_of(known: Plugin, extension: GpuExtension) -> AsyncIterator[WorkerKernels]:
    """Those of a server in the pod."""
    assert extension.serverapp is not None
    async with workers_of(known) as workers:
        owners = ProcessOwners(extension.serverapp.kernel_manager, extension.serverapp.event_logger)
        kernels = WorkerKernels(workers, owners)
        try:
            yield kernels
        finally:
            await kernels.stop()


def ask(path: str, token: str, owner: str = "", tells: object = None) -> tuple[int, Any]:
    """Answer over the server's Unix socket, to this process if no other is named; ``tells``: the body of a PUT."""
    asks = quote(owner or json.dumps(blocks.owner().to_json()))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        with rendezvous.short(path) as address:
            connection.connect(address)
        text = "" if tells is None else json.dumps(tells)
        verb = "GET" if tells is None else "PUT"
        first = f"{verb} /a%40b/jupyter-gpu/api/v1/workers?owner={asks} HTTP/1.1"
        lines = f"{first}\r\nHost: localhost\r\nAuthorization: {token}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{lines}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode())
        data = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


async def test_only_code_of_the_server_gets_secret_keys(call: Call, extension: GpuExtension, known: Plugin) -> None:
    """With the local secret and over the Unix socket; not with the server's token, and not over its port."""
    assert extension._endpoint is not None
    about = json.loads(Path(extension._endpoint.file).read_text())
    own = f"token {about['token']}"
    assert await asyncio.to_thread(ask, about["sock"], own) == (200, {"workers": []})
    async with kernels_of(known, extension) as kernels:
        extension._share(WORKER_KERNELS, kernels)
        known.annotate(service=named(READY))
        await until(lambda: kernels._keys.ways()["workers"])
        code, body = await asyncio.to_thread(ask, about["sock"], own)
        assert (code, len(body["workers"][0]["secret"])) == (200, 40)
        assert (await call("workers")).code == 404  # the server's token, over its port
        assert (await call("workers", headers={"Authorization": own})).code == 404
        assert (await call("workers", headers={"Authorization": ""})).code == 403
        token = f"token {extension.serverapp.identity_provider.token}" if extension.serverapp else ""
        assert (await asyncio.to_thread(ask, about["sock"], token))[0] == 404
        assert (await asyncio.to_thread(ask, about["sock"], "token x"))[0] == 403
        assert (await asyncio.to_thread(ask, about["sock"], own, "7"))[0] == 400
        ended = json.dumps(blocks.owner()._replace(started=1).to_json())
        code, body = await asyncio.to_thread(ask, about["sock"], own, ended)
        assert (code, body["details"]) == (400, {"field": "owner"})


async def test_only_code_of_the_server_tells_what_it_shipped(
    call: Call, extension: GpuExtension, known: Plugin
) -> None:
    """A living process alone, in a body that is small and right; without workers nothing is counted."""
    assert extension._endpoint is not None
    about = json.loads(Path(extension._endpoint.file).read_text())
    own = f"token {about['token']}"
    tells = {"owner": blocks.owner().to_json(), "shipped": {"w1": 7}}

    async def told(body: object, token: str = own) -> tuple[int, Any]:
        return await asyncio.to_thread(ask, about["sock"], token, "", body)

    assert await told(tells) == (200, {})
    async with kernels_of(known, extension) as kernels:
        extension._share(WORKER_KERNELS, kernels)
        known.annotate(service=named(READY))
        await until(lambda: kernels._keys.ways()["workers"])
        assert await told(tells) == (200, {})
        assert kernels.figures.traffic._shipped == {blocks.owner(): {"w1": 7}}
        ended = blocks.owner()._replace(started=1).to_json()
        assert (await told({**tells, "owner": ended}))[0] == 400
        assert (await told({**tells, "shipped": 7}))[1]["details"] == {"field": "shipped"}
        assert (await told({**tells, "more": "x" * 3000}))[0] == 413
        assert (await told(tells, "token x"))[0] == 403
        over_port = await call(
            "workers",
            method="PUT",
            body=json.dumps(tells),
            headers={"Authorization": own, "Content-Type": "application/json"},
        )
        assert over_port.code == 404
        assert kernels.figures.traffic._shipped == {blocks.owner(): {"w1": 7}}
