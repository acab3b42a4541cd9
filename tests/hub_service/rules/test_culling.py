"""The inactive servers that may be stopped."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kube import KubeError
from jupyter_gpu.model.annotations import ATTACHED, WORKER, Attached, encode
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.limits.owner import USERNAME
from jupyter_gpu.model.service import WorkerIdentity
from jupyter_gpu_hub.culling import CullArbiter, Pods
from jupyter_gpu_hub.rules.culling import may_stop, server_of, uses_gpus
from jupyter_gpu_hub.rules.usage import SERVER

HAS = Attached(1, (GpuShare("g", 1000),))
OPEN = Attached(1, (GpuShare("g", 1000),), open=("g",))
DRAINS = Attached(1, draining=(DrainingShare("g", 1000),))
DAY = 86400.0


def pod(attached: Attached | str | None, user: str = "ann", server: str | None = None, **status: str) -> dict[str, Any]:
    """Return a pod of a server."""
    words = {USERNAME: user}
    if attached is not None:
        words[ATTACHED] = attached if isinstance(attached, str) else encode(attached)
    if server is not None:
        words[SERVER] = server
    return {"metadata": {"uid": f"uid-{user}", "annotations": words}, "status": status}


def worker(attached: Attached | str | None, notebook: str = "uid-ann", **status: str) -> dict[str, Any]:
    """Return the pod of a worker, which has nothing of the user."""
    words = {WORKER: encode(WorkerIdentity(notebook, "w1")) if notebook else "nonsense"}
    if attached is not None:
        words[ATTACHED] = attached if isinstance(attached, str) else encode(attached)
    return {"metadata": {"uid": "uid-worker", "annotations": words}, "status": status}


@pytest.mark.parametrize(
    ("pods", "uses"),
    [
        ([], False),
        ([pod(None)], False),
        ([pod(HAS)], False),
        ([pod(OPEN)], True),
        ([pod(DRAINS)], True),
        ([pod(OPEN, "bob")], False),
        ([pod(OPEN, server="other")], False),
        ([pod(OPEN, server="")], True),
        ([pod(OPEN, phase="Succeeded")], False),
        ([pod("nonsense")], None),
        ([pod("nonsense"), pod(OPEN)], True),
        ([pod("nonsense", "bob")], False),
    ],
)
def test_use_is_that_of_the_server_s_own_pods(pods: list[dict[str, Any]], uses: bool | None) -> None:
    """A GPU that a process has open counts, also one that was given back; what can't be read is not known."""
    assert uses_gpus(pods, "ann", "") is uses


@pytest.mark.parametrize(
    ("pods", "uses"),
    [
        ([pod(HAS), worker(OPEN)], True),
        ([worker(DRAINS), pod(None)], True),
        ([pod(HAS), worker(HAS), worker(None)], False),
        ([pod(HAS), worker("nonsense")], None),
        ([pod(HAS), worker(OPEN, "uid-bob"), worker(OPEN, "")], False),
        ([pod(HAS), worker(OPEN, phase="Failed")], False),
        ([pod(HAS, phase="Failed"), worker(OPEN)], False),
        ([worker(OPEN)], False),
    ],
)
def test_workers_count_for_their_notebook(pods: list[dict[str, Any]], uses: bool | None) -> None:
    """A cell that computes on another node has a GPU open in the worker's pod alone."""
    assert uses_gpus(pods, "ann", "") is uses


@pytest.mark.parametrize(
    ("server", "names"),
    [
        ({"name": "", "full_name": "ann/"}, ("ann", "")),
        ({"name": "two", "full_name": "ann/two"}, ("ann", "two")),
        ({"name": "b", "full_name": "a/x/b"}, ("a/x", "b")),
        ({"name": ""}, None),
        ({"name": "two", "full_name": "ann/one"}, None),
        ({"name": "", "full_name": "/"}, None),
        ({"name": None, "full_name": "ann/"}, None),
    ],
)
def test_names_are_read_from_the_hub_s_model(server: dict[str, Any], names: tuple[str, str] | None) -> None:
    """A model without them names no server."""
    assert server_of(server) == names


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from([True, False, None]))
def test_only_inactive_servers_are_stopped(inactive: float, limit: float, most: float, uses: bool | None) -> None:
    """Never before the culler's own limit; with GPUs in use not before the longer one, and then in any case."""
    stops = may_stop(inactive, limit, most, uses)
    assert stops <= (inactive >= limit)
    if inactive >= limit:
        assert stops == (uses is False or inactive >= most)


class Cluster:
    """Pods that can be read, or not."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods
        self.reads = 0
        self.error: KubeError | None = None

    async def read(self) -> Pods:
        """Return the pods."""
        self.reads += 1
        if self.error:
            raise self.error
        return self.pods


def asked(cluster: Cluster, *servers: str, hours: float = 2, **options: Any) -> list[bool]:
    """Return which servers of users are to be stopped, asked all at once."""

    async def whole() -> list[bool]:
        arbiter = CullArbiter(read=cluster.read, **options)
        found = (
            arbiter(
                inactive=timedelta(hours=hours),
                inactive_limit=3600,
                server={"name": "", "full_name": f"{name}/"},
                added="later",
            )
            for name in servers
        )
        return list(await asyncio.gather(*found))

    return asyncio.run(whole())


def test_pods_are_read_once_for_all_servers() -> None:
    """A round asks for each inactive server; those that are active cost nothing."""
    cluster = Cluster(pod(OPEN), pod(HAS, "bob"))
    assert asked(cluster, "ann", "bob", "eve") == [False, True, True]
    assert cluster.reads == 1
    assert asked(cluster, "ann", "bob", hours=0.5) == [False, False]
    assert cluster.reads == 1


def test_forgotten_kernel_is_stopped_in_the_end() -> None:
    """A GPU that is open for days spares no server for ever."""
    assert asked(Cluster(pod(OPEN)), "ann", hours=25) == [True]
    assert asked(Cluster(pod(OPEN)), "ann", hours=3, spared_seconds=2 * 3600.0) == [True]


def test_nothing_is_stopped_while_pods_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """Work is not lost for an API server that is away, or a right that is missing; the reason is logged once."""
    cluster = Cluster(pod(HAS))
    cluster.error = KubeError(403, "Forbidden", "may not list pods")
    assert asked(cluster, "ann", "bob") == [False, False]
    assert caplog.text.count("may not list pods") == 1
    assert asked(cluster, "ann", hours=25) == [True]


def test_server_that_is_not_named_is_spared() -> None:
    """A hub whose model lacks the names can't be asked about; no activity at all is none to count."""

    async def whole() -> list[bool]:
        arbiter = CullArbiter(read=Cluster().read)
        two = timedelta(hours=2)
        return [
            await arbiter(inactive=two, inactive_limit=3600, server={}),
            await arbiter(inactive=None, inactive_limit=3600, server={"name": "", "full_name": "ann/"}),
        ]

    assert asyncio.run(whole()) == [False, False]
