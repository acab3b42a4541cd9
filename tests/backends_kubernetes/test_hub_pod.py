"""A server whose requests the hub's service writes: what goes wrong on that way, with a real hub and a real service."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator

import pytest

from jupyter_gpu.backends.kubernetes import KubernetesBackend
from jupyter_gpu.backends.kubernetes.hub_pod import TOKEN, HubPod, HubService, token_here
from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, NotFound, Unavailable
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED, Requested, Wish, decode_requested
from jupyter_gpu.model.errors import BackendUnavailable, LimitExceeded
from jupyter_gpu.model.status import Phase
from tests.backends_kubernetes.stage import OWNER, SECONDS, Stage
from tests.cluster.testbed.ports import free
from tests.contract.backends import reaches, running
from tests.hub_service.world import World

pytestmark = pytest.mark.cluster

ENTER = "access:services!service=gpu"
RATE = {"perSecond": 1000, "burst": 10000}


@pytest.fixture
def stage(hub: World) -> Iterator[Stage]:
    """A namespace of its own, whose servers have no token of the cluster."""
    with Stage(hub.plane, hub=hub) as made:
        yield made


def address(hub: World) -> str:
    """Return the address of the service."""
    return f"http://127.0.0.1:{hub.service.port}/services/gpu/"


def program(hub: World, stage: Stage, pod: str = "p") -> HubService:
    """Return a client with the token of the server in a pod."""
    scopes = [f"access:servers!server={OWNER.name}/{stage.namespace}-{pod}", ENTER]
    return HubService(address(hub), hub.token(OWNER.name, scopes).token, deadline=SECONDS)


async def ask_on(backend: KubernetesBackend) -> None:
    """Change the request again and again: the service knows a new pod a moment later."""
    async with asyncio.timeout(SECONDS):
        for number in range(1000):
            await backend.request(Wish(1000 * (number % 2)))
            await asyncio.sleep(0.05)


def test_requests_above_the_rate_wait_in_the_server(hub: World, stage: Stage) -> None:
    """A script that resizes in a loop takes longer, and none of its requests is lost or refused."""
    hub.service.restart(serverRate={"perSecond": 1, "burst": 2})
    try:

        async def whole() -> None:
            async with running(await asyncio.to_thread(stage.make, "p")) as backend:
                began = asyncio.get_running_loop().time()
                for number in range(1, 6):
                    view = await backend.request(Wish(1000 * (number % 3)))
                    assert view.generation == number
                assert asyncio.get_running_loop().time() - began > 2

        asyncio.run(whole())
    finally:
        hub.service.restart(serverRate=RATE)


def test_away_service_changes_nothing_and_is_told(hub: World, stage: Stage) -> None:
    """The pod keeps its GPUs; the view says what is wrong, and when the service is back, requests go on."""

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p", patience=1.5)) as backend:
            while (await backend.request(Wish(1000))).status.phase is not Phase.READY:
                await asyncio.sleep(0.1)
            await asyncio.to_thread(hub.service.kill)
            with pytest.raises(BackendUnavailable) as caught:
                await backend.request(Wish(2000))
            assert "JupyterHub's service of GPU limits can't be asked now" in caught.value.message
            assert "Nothing was changed" in caught.value.message
            view = await reaches(backend, lambda view: any(one.type == "ClusterUnreachable" for one in view.conditions))
            assert (view.status.phase, len(view.gpus)) == (Phase.READY, 1)
            await asyncio.to_thread(hub.service.start)
            await reaches(backend, lambda view: not any(one.type == "ClusterUnreachable" for one in view.conditions))
            assert (await backend.request(Wish(2000))).generation == 2

    asyncio.run(whole())


@pytest.mark.parametrize(("point", "before"), [("hub:checked", 1), ("hub:requested", 2)])
def test_request_during_which_the_service_is_killed_is_written_once(
    hub: World, stage: Stage, point: str, before: int
) -> None:
    """The server asks again: what the killed service had not written is written now, and what it had is not again.

    ``before``: the generation in the pod when the service is dead.
    """
    assert point in faults.HUB_POINTS

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p", patience=SECONDS)) as backend:
            assert (await backend.request(Wish(1000))).generation == 1
            hub.service.crash_at.write_text(point)
            asking = asyncio.create_task(backend.request(Wish(2000)))
            assert hub.service.process
            assert await asyncio.to_thread(hub.service.process.wait, SECONDS) == -signal.SIGKILL
            killed = recorded(stage)
            assert (killed.generation, asking.done()) == (before, False)
            await asyncio.to_thread(hub.service.start)
            assert (await asking).generation == 2
            assert recorded(stage) == Requested(2, Wish(2000))

    asyncio.run(whole())


@pytest.mark.parametrize("informed", [True, False])
def test_request_that_a_killed_service_had_written_is_not_called_lost(hub: World, stage: Stage, informed: bool) -> None:
    """While no service runs, the server learns from the node plugin that it was written, or says that it can't tell."""

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p", patience=3)) as backend:
            assert (await backend.request(Wish(1000))).generation == 1
            if not informed:
                (socket,) = stage.sockets.values()
                await asyncio.to_thread(stage.do, socket.close())
            hub.service.crash_at.write_text("hub:requested")
            if informed:
                assert (await backend.request(Wish(2000))).generation == 2
            else:
                with pytest.raises(BackendUnavailable, match="It is not known whether the request was recorded"):
                    await backend.request(Wish(2000))
            assert hub.service.process
            await asyncio.to_thread(hub.service.process.wait, SECONDS)
            assert recorded(stage) == Requested(2, Wish(2000))

    try:
        asyncio.run(whole())
    finally:
        hub.service.kill()
        hub.service.start()


def recorded(stage: Stage) -> Requested:
    """Return the request in the pod at the API server."""
    text = stage.plane.kubectl("get", "pod", "p", "--namespace", stage.namespace, "--output", "json")
    return decode_requested(json.loads(text)["metadata"]["annotations"][REQUESTED])


def test_away_hub_changes_nothing(hub: World, stage: Stage) -> None:
    """The service can't tell whose token it is, so it has written nothing, and the server says so."""
    before, (nowhere,) = hub.service.api_url, free(1)

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p", patience=1.5)) as backend:
            hub.service.api_url = f"http://127.0.0.1:{nowhere}/hub/api"
            await asyncio.to_thread(hub.service.restart)
            with pytest.raises(BackendUnavailable, match="Nothing was changed"):
                await backend.request(Wish(1000))
            assert backend.view().requested is None

    try:
        asyncio.run(whole())
    finally:
        hub.service.api_url = before
        hub.service.restart()


def test_start_without_a_pod_names_the_remedy(hub: World, stage: Stage) -> None:
    """A name of the hub that does not fit is told at the start; so is a token that may not enter the service."""
    _, folder = stage.do(stage.pod("p"))

    async def whole(scopes: list[str], words: str) -> None:
        token = (await asyncio.to_thread(hub.token, OWNER.name, scopes)).token
        backend = KubernetesBackend(hub_service=address(hub), hub_token=token, socket=folder / "node.sock")
        with pytest.raises(BackendUnavailable, match=words):
            await backend.start()
        with pytest.raises(BackendUnavailable):
            await backend.request(Wish(1000))
        await backend.stop()

    unknown = f"access:servers!server={OWNER.name}/{stage.namespace}-other"
    asyncio.run(whole([unknown, ENTER], r"does not know the pod of this server: .* compare hub\.name"))
    asyncio.run(whole([unknown], r"does not let this server ask for GPUs: .* Spawner\.server_token_scopes"))


def test_two_pods_of_one_server_are_told_at_once(hub: World, stage: Stage) -> None:
    """Trying again would not help, so the request fails with the names of both."""

    async def whole() -> None:
        async with running(await asyncio.to_thread(stage.make, "p")) as backend:
            await backend.request(Wish(1000))
            named = {"hub.jupyter.org/servername": f"{stage.namespace}-p"}
            await stage.asking(stage.pod("twin", named))
            with pytest.raises(BackendUnavailable, match=r"2 pods say that they are server .*/p, .*/twin\."):
                await ask_on(backend)

    asyncio.run(whole())


def test_limit_is_the_servers_own_error(hub: World, stage: Stage) -> None:
    """A limit of which the server does not know yet is told as if it had known; a conflict is one."""
    limit = {"milli": 2000, "max": 2000, "source": {"kind": "Group", "name": "ml", "by": "root", "at": 1777800000}}
    stage.deciding = False
    allocated = {"jupyter-gpu.io/allocated": json.dumps({"observedGeneration": 0, "shares": [], "limit": limit})}
    uid, _ = stage.do(stage.pod("p", allocated))

    async def whole() -> None:
        async with program(hub, stage) as service:
            own = HubPod(service, uid)
            pod = await own.fetch_first()
            version = objects.resource_version(pod)
            with pytest.raises(LimitExceeded, match="Your limit is 2 GPUs, set for group ml by root"):
                await own.write(Requested(1, Wish(3000)), version)
            assert objects.newer(await own.write(Requested(1, Wish(2000)), version), pod)
            with pytest.raises(Conflict):
                await own.write(Requested(2, Wish(1000)), version)
            with pytest.raises(NotFound, match="another pod"):
                await HubPod(service, "another").fetch()

    asyncio.run(whole())


def test_token_goes_to_no_other_address() -> None:
    """A redirect is not followed, whether to another server or to the same one."""
    seen: list[bytes] = []

    async def whole() -> None:
        async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.close()

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(elsewhere, "127.0.0.1", 0) as second:
            other = second.sockets[0].getsockname()[1]
            async with await asyncio.start_server(redirect, "127.0.0.1", 0) as first:
                port = first.sockets[0].getsockname()[1]
                async with HubService(f"http://127.0.0.1:{port}/", "secret", deadline=5) as service:
                    with pytest.raises(Unavailable, match="the token is not sent there") as caught:
                        await service.call("GET")
        assert (caught.value.status, caught.value.sent, seen) == (307, False, [])

    asyncio.run(whole())


def test_server_without_a_token_of_the_hub_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting alone is not enough; a token that is no header is none."""
    for value in ("", "a\nb", "t\u00f6ken"):
        monkeypatch.setenv(TOKEN, value)
        with pytest.raises(BackendUnavailable, match="JUPYTERHUB_API_TOKEN is not set"):
            token_here()
    monkeypatch.setenv(TOKEN, "abc")
    assert token_here() == "abc"


def test_closed_client_sends_nothing() -> None:
    """A call after the end fails at once, and says that nothing was sent."""

    async def whole() -> None:
        service = HubService("http://127.0.0.1:1/", "secret", deadline=5)
        with pytest.raises(Unavailable) as caught:
            await service.call("GET")
        assert not caught.value.sent
        async with service:
            with pytest.raises(Unavailable) as caught:
                await service.call("GET")
        assert not caught.value.sent

    asyncio.run(whole())
