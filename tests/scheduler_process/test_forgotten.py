"""etcd forgets old versions (a compaction) while a watch is cut off: 410 Gone, and nothing is lost by it."""

import asyncio
import base64
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kube import Gone, Kube, kubeconfig
from jupyter_gpu.kube.rules import objects, paths
from tests.cluster.testbed import ControlPlane, control_plane, until
from tests.kube.conftest import MAPS
from tests.kube.proxy import Proxy
from tests.kube.test_reflector import following, write
from tests.scheduler_process.stage import Stage

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server that keeps nothing of these by itself: how far a watch can go back is up to etcd."""
    with control_plane(flags={"apiserver": ["--watch-cache-sizes=configmaps#0,pods#0"]}) as made:
        yield made


def etcd(plane: ControlPlane, verb: str, **body: object) -> dict[str, Any]:
    """A call of etcd's own API."""
    url = f"http://127.0.0.1:{plane.layout.etcd_port}/v3/kv/{verb}"
    request = urllib.request.Request(url, data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def compact(plane: ControlPlane) -> None:
    """All versions but the newest of everything are forgotten."""
    now = etcd(plane, "range", key=base64.b64encode(b"/").decode())["header"]["revision"]
    etcd(plane, "compaction", revision=now, physical=True)


def through(plane: ControlPlane, proxy: Proxy, folder: Path) -> Path:
    """A kubeconfig for the way through a proxy."""
    config = json.loads(plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
    path = folder / "proxy.kubeconfig"
    path.write_text(json.dumps(config))
    return path


async def forgotten(kube: Kube, path: str, version: str) -> bool:
    """Tell whether no watch can continue from this version."""
    try:
        async for _ in kube.watch(path, resource_version=version):
            return False
    except Gone:
        return True
    return False


def test_watch_with_a_forgotten_version_lists_again(plane: ControlPlane, tmp_path: Path) -> None:
    """Objects added, changed, removed and recreated in the gap are reported once each; then changes come as before."""
    label = f"forgotten-{id(tmp_path)}"

    @asynccontextmanager
    async def shaky() -> AsyncIterator[tuple[Kube, Proxy]]:
        async with (
            Proxy(plane.layout.port) as proxy,
            Kube(kubeconfig(through(plane, proxy, tmp_path)), deadline=5) as kube,
        ):
            yield kube, proxy

    async def play() -> None:
        async with Kube(kubeconfig(plane.kubeconfig)) as kube, shaky() as (cut_off, proxy):
            for name in ("keep", "change", "remove", "again"):
                await write(kube, label, f"{label}-{name}", "1")
            async with following(cut_off, label) as (_, follower):
                await follower.until(lambda: len(follower.there) == 4)
                version = max(map(objects.resource_version, follower.there.values()), key=int)
                follower.told.clear()
                proxy.refusing = True
                proxy.cut()
                await follower.until(lambda: bool(follower.troubles))
                await write(kube, label, f"{label}-change", "2")
                for name in ("remove", "again"):
                    await kube.delete(f"{MAPS}/{label}-{name}")
                for name in ("again", "new"):
                    await write(kube, label, f"{label}-{name}", "2")
                await asyncio.to_thread(compact, plane)
                assert await forgotten(kube, MAPS, version)
                proxy.refusing = False
                await follower.until(lambda: len(follower.told) == 5)
                assert sorted(follower.told) == [
                    ("added", f"{label}-again"),
                    ("added", f"{label}-new"),
                    ("changed", f"{label}-change"),
                    ("removed", f"{label}-again"),
                    ("removed", f"{label}-remove"),
                ]
                truth = {objects.uid(item): item for item in (await kube.list(MAPS, labels=f"t={label}")).items}
                assert follower.there == truth
                await write(kube, label, f"{label}-keep", "2")
                await follower.until(lambda: follower.told[-1] == ("changed", f"{label}-keep"))

    asyncio.run(play())


@contextmanager
def cut_off(stage: Stage) -> Iterator[tuple[Proxy, Path]]:
    """A proxy on the stage's event loop, and a kubeconfig for the way through it."""
    proxy = Proxy(stage.plane.layout.port)
    stage.do(proxy.__aenter__())
    try:
        yield proxy, through(stage.plane, proxy, stage.folder)
    finally:
        stage.do(proxy.__aexit__(None, None, None))


def test_controller_serves_changes_made_while_it_was_cut_off(stage: Stage) -> None:
    """Resized, deleted, new, and recreated pods have what they want, and the same process leads."""
    node = stage.node(gpus=4)
    lease = {"name": stage.prefix, "durationSeconds": 120, "renewSeconds": 100, "retrySeconds": 0.3}
    with cut_off(stage) as (proxy, config):
        scheduler = stage.scheduler(settings={"lease": lease}, environ={"KUBECONFIG": str(config)})
        for name in ("resized", "deleted", "anew"):
            stage.pod(name, node, 1)
            stage.until_count(name, 1)
        version = objects.resource_version(stage.get("anew"))
        proxy.refusing = True
        stage.do(_cut(proxy))
        stage.request("resized", 2)
        stage.delete("deleted")
        stage.delete("anew")
        stage.pod("anew", node, 1)
        stage.pod("new", node, 1)
        compact(stage.plane)
        assert stage.do(_forgotten(stage.plane, version))
        assert stage.allocated("new") is None
        proxy.refusing = False
        for name, count in (("resized", 2), ("new", 1), ("anew", 1)):
            stage.until_count(name, count)
        stage.request("new", 0)
        stage.until_count("new", 0)
        until(scheduler.leads, what="it to lead still")
        scheduler.kill()
    assert not stage.watcher.decided_twice


async def _cut(proxy: Proxy) -> None:
    proxy.cut()


async def _forgotten(plane: ControlPlane, version: str) -> bool:
    async with Kube(kubeconfig(plane.kubeconfig)) as kube:
        return await forgotten(kube, paths.pods(), version)
