"""Tokens and authorities that are replaced in place, as the kubelet does it for mounted files: no process restarts."""

import asyncio
import os
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kube import Credentials, Kube, Reflector, Selection, Unauthorized, Unavailable, in_cluster, kubeconfig
from jupyter_gpu.kube.rules import objects
from tests.cluster.testbed import ControlPlane
from tests.cluster.testbed.pki import Authority, Identity
from tests.kube.answers import answering, http
from tests.kube.conftest import MAPS
from tests.kube.mount import Mount

SECONDS = 60.0
ACCOUNT = "/api/v1/namespaces/default/serviceaccounts"


async def _token(kube: Kube, account: str) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    return str((await kube.create(f"{ACCOUNT}/{account}/token", body))["status"]["token"])


async def _user(kube: Kube) -> str:
    """The id of the very token that a call was made with."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found: dict[str, Any] = await kube.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    user = found["status"]["userInfo"]
    return str(user["extra"]["authentication.kubernetes.io/credential-id"][0])


@pytest.mark.cluster
def test_token_of_a_pod_is_renewed(plane: ControlPlane, tmp_path: Path) -> None:
    """The next call has the new one, and a watch goes on over it."""

    name = f"renewed-{secrets.token_hex(4)}"

    async def play() -> None:
        authority = plane.authority.identity.certificate.read_text()
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.layout.port)}
        mount = Mount(tmp_path)
        async with Kube(kubeconfig(plane.kubeconfig)) as admin:
            await admin.create(ACCOUNT, {"metadata": {"name": name}})
            plane.kubectl("create", "role", name, "--verb=list,watch", "--resource=configmaps")
            plane.kubectl("create", "rolebinding", name, f"--role={name}", f"--serviceaccount=default:{name}")
            mount.put(token=await _token(admin, name), ca_crt=authority, namespace="default")
            async with Kube(in_cluster(tmp_path, environ)) as kube:
                names: asyncio.Queue[str] = asyncio.Queue()
                follower = Reflector(
                    kube,
                    Selection(MAPS, labels=f"t={name}"),
                    on_change=lambda change: names.put_nowait(objects.name(change.object)),
                )
                task = asyncio.create_task(follower.run())
                await asyncio.wait_for(follower.synced.wait(), SECONDS)
                before = await _user(kube)
                assert await _user(kube) == before
                mount.put(token=await _token(admin, name), ca_crt=authority, namespace="default")
                after = await _user(kube)
                await admin.create(MAPS, {"metadata": {"name": name, "labels": {"t": name}}})
                assert await asyncio.wait_for(names.get(), SECONDS) == name
                task.cancel()
                await asyncio.wait((task,))
            assert before != after

    asyncio.run(play())


def test_refused_watch_reads_the_token_again(tmp_path: Path) -> None:
    """It does so even if the file looks the same because the clock was set back."""
    file = tmp_path / "token"
    file.write_text("first")

    async def play() -> list[str]:
        async with answering([http(200, "{}"), http(401), http(200, "")], token=file) as (kube, asked):

            async def watch() -> None:
                async for _ in kube.watch(MAPS, resource_version="1"):
                    pass

            await kube.get(MAPS)  # with the first token
            there = file.stat()
            file.write_text("other")
            os.utime(file, ns=(there.st_atime_ns, there.st_mtime_ns))
            with pytest.raises(Unauthorized):
                await watch()
            await watch()
            return asked

    _, first, second = asyncio.run(play())
    assert "Bearer first" in first
    assert "Bearer other" in second


class Server:
    """Answers ``{}`` to everything, each time on a new connection, with the certificate that it has now."""

    def __init__(self, identity: Identity) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.take(identity)
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, identity: Identity) -> None:
        """Take tokens from now on."""
        self._context.load_cert_chain(identity.certificate, identity.key)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(http(200, "{}", "Connection: close"))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        try:
            yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()


def _authority(folder: Path) -> tuple[bytes, Identity]:
    """A certificate authority, and a server's certificate of it."""
    made = Authority(folder)
    made.make()
    return made.identity.certificate.read_bytes(), made.issue("server", "server", addresses=["127.0.0.1"])


def test_replaced_authority_is_trusted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The old one is trusted until the file says otherwise, and not after; an unreadable file changes nothing."""
    old, was = _authority(tmp_path / "old")
    new, becomes = _authority(tmp_path / "new")
    mount = Mount(tmp_path / "mount")
    mount.put(ca_crt=old)

    async def play() -> None:
        server = Server(was)
        async with server.serving() as url, Kube(Credentials(url, mount.folder / "ca.crt"), deadline=10) as kube:
            await kube.get("/x")
            mount.put(ca_crt="not yet")
            await kube.get("/x")
            (mount.folder / "..data").rename(mount.folder / "..away")
            await kube.get("/x")
            server.take(becomes)
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await kube.get("/x")
            mount.put(ca_crt=old + new)
            await kube.get("/x")
            mount.put(ca_crt=new)
            await kube.get("/x")
            server.take(was)
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await kube.get("/x")

    asyncio.run(play())
    assert "can't be used (yet)" in caplog.text
