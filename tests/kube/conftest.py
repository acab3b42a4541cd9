"""A real API server for all tests of the client, and clients of it."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from jupyter_gpu.kube import Kube, kubeconfig
from tests.cluster.testbed import ControlPlane, control_plane
from tests.kube.proxy import Proxy

MAPS = "/api/v1/namespaces/default/configmaps"
"""Objects that only the test writes."""

Through = Callable[..., AbstractAsyncContextManager[tuple[Kube, Proxy]]]


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """etcd and the API server."""
    with control_plane() as made:
        yield made


@pytest.fixture
def through(plane: ControlPlane, tmp_path: Path) -> Through:
    """A client whose connections a test can cut."""

    @asynccontextmanager
    async def opened(deadline: float = 5) -> AsyncIterator[tuple[Kube, Proxy]]:
        async with Proxy(plane.layout.port) as proxy:
            config = json.loads(plane.kubeconfig.read_text())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
            path = tmp_path / f"{proxy.port}.kubeconfig"
            path.write_text(json.dumps(config))
            async with Kube(kubeconfig(path), deadline=deadline) as kube:
                yield kube, proxy

    return opened
