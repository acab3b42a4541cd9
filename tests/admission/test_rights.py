"""The rights that the chart grants suffice: the scheduler runs with the token of its own account, and no more."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jupyter_gpu.kube import Credentials, Forbidden, Kube, in_cluster
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_hub.rules import usage
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.server_pod import HubServer, PodChange
from jupyter_gpu_hub.rules.usage import SERVER
from jupyter_gpu_hub.state.copy import Copy
from jupyter_gpu_hub.state.server_pods import ServerPods
from tests.admission.api import MERGE
from tests.admission.test_admission import some_plane
from tests.admission.test_definitions import ACCOUNTS, LIMITS, limit
from tests.admission.world import FOREIGN, NOTEBOOKS, ONE, PODS, PREFIX, SYSTEM, USERNAME, World, slot_pod
from tests.cluster.testbed import until
from tests.deploy import chart
from tests.scheduler_process.stage import Scheduler

pytestmark = [pytest.mark.cluster]
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices/jupyter-gpu-scheduler"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world for these tests alone: a scheduler works in it."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("rights"))
        world.build()
        yield world
        world.close()


def test_scheduler_runs_with_its_own_rights(world: World, tmp_path: Path) -> None:
    """It follows pods, nodes and limits, is elected, tells its address, keeps the lease, decides and keeps accounts."""
    world.admin.need(
        "POST", LIMITS, limit({"subject": {"kind": "Namespace", "name": NOTEBOOKS}, "max": 1}, "notebooks")
    )
    world.apply([item for item in chart.render(namespace=SYSTEM) if item["kind"] == "Service"])
    config = yaml.safe_load(Path(world.plane.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {"token": world.token(SYSTEM, "jupyter-gpu-scheduler", _of(world, "scheduler"))}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    lease = {"namespace": SYSTEM, "name": "jupyter-gpu-scheduler", "durationSeconds": 6, "retrySeconds": 0.5}
    settings = {
        "lease": {**lease, "renewSeconds": 3},
        "namespaces": [NOTEBOOKS],
        "extender": {"address": "127.0.0.1", "port": 0, "endpointSlice": "jupyter-gpu-scheduler"},
    }
    scheduler = Scheduler(tmp_path, path, settings, POD_IP="10.0.0.9", POD_NAMESPACE=SYSTEM)
    try:
        scheduler.until_leading()
        until(lambda: bool(world.admin("GET", SLICE).body.get("endpoints")), what="its address to be told")
        before = _renewed(world)
        until(lambda: _renewed(world) != before, what="the lease to be kept")
        until(lambda: scheduler.metric("jupyter_gpu_scheduler_decisions_total") > 0, what="a decision")
        until(lambda: scheduler.metric('jupyter_gpu_scheduler_writes_total{kind="allocated",outcome="done"}') > 0)
        until(lambda: {"used", "waiting"} <= _account(world).keys(), what="the account of a namespace")
    finally:
        scheduler.stop()
    assert "forbidden" not in scheduler.log.lower(), scheduler.log


def test_no_account_reads_single_nodes(world: World) -> None:
    """Programs need lists and watches alone; an account that may watch a node may not get it by name."""
    for who in ("scheduler", "plugin"):
        api = world.identities[who]
        assert api("GET", f"/api/v1/nodes?fieldSelector=metadata.name%3D{ONE}").ok
        assert api("GET", f"/api/v1/namespaces/{NOTEBOOKS}/pods/lab").ok
        assert api("GET", f"/api/v1/nodes/{ONE}").status == 403


def test_notebooks_read_nothing(world: World) -> None:
    """A notebook reads no pods, not even its own, nor the answer to an empty change of another's."""
    notebook = world.identities["notebook"]
    pods = f"/api/v1/namespaces/{NOTEBOOKS}/pods"
    for path in (f"{pods}/lab", f"{pods}/lab/status", pods, f"{pods}?watch=true", "/api/v1/pods", f"{pods}/lab/log"):
        assert notebook("GET", path).status == 403, path
    nothing: dict[str, object] = {"metadata": {}}
    own = notebook.need("PATCH", f"{pods}/lab/status", nothing, MERGE)
    assert own["metadata"]["name"] == "lab"
    assert notebook("PATCH", f"{pods}/other/status", nothing, MERGE).status == 403


def test_hubs_service_writes_requests_with_its_own_rights(world: World, tmp_path: Path) -> None:
    """It finds, reads and writes the pods of its hub's servers, and can't reach other namespaces."""
    hub = world.identities["hub"]
    for name, server in (("server", ""), ("server-two", "two")):
        annotations = {USERNAME: "ann", **({SERVER: server} if server else {})}
        hub.need("POST", PODS, slot_pod(name, metadata={"annotations": annotations, "labels": {SERVER: server}}))
    elsewhere = {"annotations": {USERNAME: "bob", f"{PREFIX}hub": NOTEBOOKS}, "labels": {SERVER: ""}}
    world.place(slot_pod("elsewhere", metadata=elsewhere), "", FOREIGN)
    (tmp_path / "token").write_text(world.token(SYSTEM, "jupyter-gpu-hub"))
    (tmp_path / "ca.crt").write_bytes(world.plane.ca)
    host, port = world.plane.endpoint
    asyncio.run(_write(in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)})))
    texts = {
        name: world.admin.need("GET", f"{PODS}/{name}")["metadata"]["annotations"].get(f"{PREFIX}requested")
        for name in ("server", "server-two")
    }
    assert texts == {"server": None, "server-two": '{"generation":1,"milli":1000}'}


async def _write(credentials: Credentials) -> None:
    """Write the request of one server, and fail to write another's, as the service does."""
    async with Kube(credentials) as kube:
        pods = Copy(kube, paths.pods(), usage.read_pod, lambda _before, _after: None)
        made = ServerPods(kube, pods, lambda owner: [pod for pod in pods if pod.owner == owner])
        following = asyncio.create_task(pods.reflector.run())
        try:
            async with asyncio.timeout(60):
                await pods.reflector.synced.wait()
            server = HubServer(Owner("User", "ann", NOTEBOOKS), "two")
            pod = await made.read(server)
            assert objects.name(pod) == "server-two"
            change = PodChange(Requested(1, Wish(1000)), objects.resource_version(pod))
            written = await made.write(server, change)
            assert objects.newer(written, pod)
            with pytest.raises(Refusal) as late:
                await made.write(server, change)
            assert late.value.status == 409
            with pytest.raises(Forbidden, match="cannot patch resource"):
                await made.read(HubServer(Owner("User", "bob", NOTEBOOKS), ""))
        finally:
            following.cancel()
            await asyncio.wait([following])


def _of(world: World, name: str) -> dict[str, object]:
    return world.admin.need("GET", f"/api/v1/namespaces/{SYSTEM}/pods/{name}")


def _account(world: World) -> dict[str, object]:
    """Return the status of the account of the notebooks' namespace."""
    items = world.admin.need("GET", ACCOUNTS)["items"]
    owned = [item for item in items if item["spec"]["owner"] == {"kind": "Namespace", "name": NOTEBOOKS}]
    return owned[0].get("status", {}) if owned else {}


def _renewed(world: World) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/jupyter-gpu-scheduler"
    return str(world.admin.need("GET", path)["spec"]["renewTime"])
