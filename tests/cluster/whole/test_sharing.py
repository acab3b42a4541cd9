"""Time shares on a cluster: unmodified programs in pods, the shim that the node plugin puts in front of the driver."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.view import Sample
from tests.cluster.testbed import until
from tests.cluster.whole import faults, pods, sharer
from tests.cluster.whole.test_running import rest
from tests.cluster.whole.world import NOTEBOOKS, SECONDS, Product, World, world
from tests.deploy import product as chart
from tests.gate.standin.board import Board, busy

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product
WORK = f"python3 {pods.PROGRAMS}/sharer.py {pods.LOGS}/work 2000"


def sharing(made: dict[str, Any]) -> dict[str, Any]:
    """The pod with the boards of the node's GPUs, on which it is the owner of its work."""
    (container,) = made["spec"]["containers"]
    container["env"] += [
        {"name": "JUPYTER_GPU_STANDIN", "value": chart.BOARDS},
        {"name": "JUPYTER_GPU_STANDIN_OWNER", "value": made["metadata"]["name"]},
    ]
    container["volumeMounts"].append({"name": "boards", "mountPath": chart.BOARDS})
    made["spec"]["volumes"].append({"name": "boards", "hostPath": {"path": chart.BOARDS, "type": "Directory"}})
    return made


def worker(corner: World, name: str, wants: str) -> dict[str, Any]:
    """A pod whose program uses its GPU all the time."""
    image = corner.product.component("node")[0]["spec"]["containers"][0]["image"]  # it has Python, and is there already
    files = {pods.PROGRAMS: "programs"}
    return sharing(pods.pod(name, ("sh", "-c", WORK), image=image, wants=wants, node=corner.one, files=files))


def prepare(corner: World) -> None:
    """The programs for its pods."""
    driver = chart.ROOT / "tests" / "gate" / "standin" / "driver.py"  # to import it would load a driver here
    corner.programs(**{"sharer.py": Path(sharer.__file__).read_text(), "driver.py": driver.read_text()})


def said(corner: World, name: str) -> dict[str, Any]:
    """Return what the program of a pod wrote last."""
    folder = f"/var/lib/kubelet/pods/{corner.pod(name).uid}/volumes/kubernetes.io~empty-dir/logs/work"
    found: dict[str, Any] = json.loads(corner.node_of(name).path(folder).read_text())
    return found


def goes_on(corner: World, *names: str, more: int = 50) -> None:
    """Until the programs of these pods have launched so many kernels from now on."""
    for name in names:
        until(lambda name=name: said(corner, name), SECONDS, f"the program of {name} to begin")  # type: ignore[misc]
    before = {name: said(corner, name)["count"] for name in names}

    def further() -> bool:
        return all(said(corner, name)["count"] >= before[name] + more for name in names)

    try:
        until(further, SECONDS, f"{names} to go on")
    except Exception as error:
        raise AssertionError(f"{error}\n{corner.report()}") from error


def board(corner: World, name: str) -> Board:
    """Return the figures of the one GPU of a pod."""
    state = corner.pod(name)
    (uuid,) = state.usable
    return Board(corner.cluster.node(state.node).path(chart.BOARDS), uuid)


def had(corner: World, *names: str) -> dict[str, float]:
    """Return the part that each had of the use of their GPU for a while: how much they use says more of the machine."""
    found, since = board(corner, names[0]), time.monotonic_ns() // 1000
    first = found.sums().launches
    goes_on(corner, *names, more=300)
    used = {name: busy(found.log(max(0, first - 10)), name, since) for name in names}
    return {name: time / sum(used.values()) for name, time in used.items()}


def test_two_pods_share_a_gpu(corner: World) -> None:
    """Each has at least its share and none runs beside the other, also while the node plugin dies and comes back."""
    prepare(corner)
    names = ("small", "large")
    corner.run(worker(corner, "small", "250m"), worker(corner, "large", "500m"))
    assert corner.pod("small").usable.keys() == corner.pod("large").usable.keys(), "They are on one GPU."
    goes_on(corner, *names)

    def have_their_parts() -> bool:
        """Wait until each has its part: savings are used first."""
        parts = had(corner, *names)
        print(f"\n{parts}")
        return parts["small"] >= 0.2 and parts["large"] >= 0.45

    until(have_their_parts, SECONDS, "each to have its part")
    libraries = said(corner, "small")["libraries"]
    assert libraries == ["/run/jupyter-gpu/driver/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"]
    faults.hit("the node plugin", lambda: faults.agents(corner, corner.cluster.node(corner.one)))
    goes_on(corner, *names)
    assert board(corner, "small").sums().overlaps == 0


def test_share_grows_to_a_whole_gpu_and_back(corner: World) -> None:
    """Meanwhile its program runs, waits for nothing for long, and loses nothing."""
    prepare(corner)
    corner.run(worker(corner, "one", "250m"))
    goes_on(corner, "one")
    for wish, milli in (("1", 1000), ("500m", 500)):
        corner.ask("one", wish)
        corner.has("one", milli)
        goes_on(corner, "one")
    corner.run(worker(corner, "two", "500m"))
    assert corner.pod("one").usable.keys() == corner.pod("two").usable.keys(), "They are on one GPU."
    goes_on(corner, "one", "two")
    assert board(corner, "one").sums().overlaps == 0


def test_notebook_sees_its_share(product: Product) -> None:
    """It sees by REST, as the panel does, its use and waits, its bank, and how many share the GPU."""
    with world(product, NOTEBOOKS[0]) as found:
        prepare(found)
        made = pods.notebook("rest", product.notebook, node=found.one, wants="250m", files={pods.PROGRAMS: "programs"})
        found.run(sharing(made), worker(found, "other", "500m"))
        found.exec("rest", "sh", "-c", f"nohup {WORK} >{pods.LOGS}/words 2>&1 &")
        goes_on(found, "rest", "other")
        (uuid,) = found.pod("rest").usable
        with found.forwarded("rest", 8888) as port:
            view = until(lambda: rest(port, "GET", "status"), SECONDS, "the Jupyter server to answer")
            assert "ShareNotEnforced" not in {each["type"] for each in view["conditions"]}

            def used() -> Sample | None:
                sample = Sample.from_json(rest(port, "GET", "sample"))
                share = sample.shares.get(uuid)
                return sample if share and share.guaranteed > 100_000 and share.waited > 0 else None

            sample = until(used, SECONDS, "the sample to tell of the share")
            assert sample
            share = sample.shares[uuid]
            assert (share.allocated, share.sharing) == (250, 1)
