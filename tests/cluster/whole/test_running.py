"""Running pods: GPUs given back while in use, GPUs that come later, and which pod sees which GPU."""

import contextlib
import json
import urllib.request
from typing import Any

import pytest

from tests.cluster.testbed.commands import CommandFailed, until
from tests.cluster.whole import pods
from tests.cluster.whole.world import NOTEBOOKS, SECONDS, Product, World, world
from tests.deploy import product as chart

pytestmark = [
    pytest.mark.root,
    pytest.mark.cluster,
    pytest.mark.existing,
    pytest.mark.timeout(900),  # the first of all installs the product
]


def test_gpu_in_use_drains_before_another_pod_gets_it(corner: World) -> None:
    """A shrunk pod keeps a GPU that a process of it has open; another pod that wants all gets it when it is closed."""
    corner.run(pods.pod("first", wants=2, node=corner.one), pods.pod("second", node=corner.one))
    kept, closed = sorted(corner.pod("first").usable)
    with corner.holding("first", corner.path_of(kept)):
        corner.ask("first", 0)

        def drains() -> bool:
            state = corner.pod("first")
            return set(state.draining) == {kept} and not state.usable

        corner.until(drains, "the GPU that is held to drain")
        assert not corner.opens("first", corner.path_of(kept)), "A GPU that drains must not be opened again."
        corner.ask("second", 4)
        second = corner.has("second", 3000)
        assert closed in second.usable
        assert second.allocated
        assert second.allocated.reason == "Partial"
        corner.event("second", "that less is there", lambda reason, _: reason == "GpusPartial")
        assert kept in corner.pod("first").draining
    corner.has("second", 4000)
    corner.until(lambda: not corner.pod("first").held, "the first pod to have nothing")
    released = corner.history.first("first", lambda state: not state.draining, after=_last_drain(corner))
    given = corner.history.first("second", lambda state: kept in state.granted)
    assert released.number < given.number, "It was given away before it was closed."
    print(f"\nclosed → decided for the next: {(given.heard - released.heard) * 1000:.0f} ms")


def _last_drain(corner: World) -> int:
    return next(moment.number for moment in corner.history.moments if moment.state.draining)


def test_cancelled_shrink_gets_its_gpu_back(corner: World) -> None:
    """A draining GPU comes back to the pod that wants it again; the process that holds it noticed nothing."""
    corner.run(pods.pod("one", wants=1, node=corner.one))
    (uuid,) = corner.pod("one").usable
    with corner.holding("one", corner.path_of(uuid)):
        corner.ask("one", 0)
        corner.until(lambda: uuid in corner.pod("one").draining, "the GPU to drain")
        corner.ask("one", 1)
        assert set(corner.has("one", 1000).usable) == {uuid}
        assert corner.opens("one", corner.path_of(uuid))
    assert corner.opens("one", corner.path_of(uuid))


def test_partial_grant_is_completed_when_another_shrinks(corner: World) -> None:
    """The other's `attached` is what completes it: no program polls."""
    corner.run(pods.pod("rich", wants=3, node=corner.one), pods.pod("poor", node=corner.one))
    corner.ask("poor", {"generation": 1, "milli": 2000})
    partial = corner.has("poor", 1000)
    assert partial.allocated
    assert partial.allocated.reason == "Partial"
    assert "GPU" in corner.event("poor", "that one is owed", lambda reason, _: reason == "GpusPartial")
    before = corner.history.moments[-1].number
    corner.ask("rich", 2)
    whole = corner.has("poor", 2000)
    assert whole.allocated
    assert whole.allocated.reason is None
    assert all(corner.opens("poor", corner.path_of(uuid)) for uuid in whole.usable)
    closed = corner.history.first("rich", lambda state: len(state.held) == 2, after=before)
    given = corner.history.first("poor", lambda state: len(state.granted) == 2, after=before)
    assert closed.number < given.number
    print(f"\nclosed → decided for who was owed: {(given.heard - closed.heard) * 1000:.0f} ms")


def test_two_pods_open_one_gpu_by_halves(corner: World) -> None:
    """Two shares of one GPU: both pods can open it, a third pod cannot."""
    corner.run(*(pods.pod(name, wants="500m", node=corner.one) for name in ("left", "right")))
    corner.run(pods.pod("none", node=corner.one))
    left, right = (set(corner.pod(name).usable) for name in ("left", "right"))
    assert left == right, "Two halves fit on one GPU."
    path = corner.path_of(left.pop())
    assert [corner.opens(name, path) for name in ("left", "right", "none")] == [True, True, False]


def test_gpu_is_selected_by_model(corner: World) -> None:
    """It is selected by the node's label and by the wish; if no node has the model, the pod's event says so."""
    corner.create(
        pods.pod("labelled", wants=1, selector={"jupyter-gpu.io/gpu.model": "Simulated-GPU"}),
        pods.pod("wished", wants={"generation": 1, "milli": 1000, "model": ["Simulated GPU"]}),
        pods.pod("elsewhere", wants=1, selector={"jupyter-gpu.io/gpu.model": "Other"}),
        pods.pod("unknown", wants={"generation": 1, "milli": 1000, "model": ["Unheard-of"]}),
    )
    for name in ("labelled", "wished"):
        corner.has(name, 1000)
    said = corner.event("unknown", "no such model", lambda reason, text: "FailedScheduling" in reason and bool(text))
    assert "Unheard-of" in said, said
    assert not corner.pod("unknown").node
    assert not corner.pod("elsewhere").node


def test_pods_without_a_slot_see_no_gpu(corner: World) -> None:
    """No node of a GPU is there; one that a pod makes does not open, and without capabilities it makes none."""
    root = {"runAsUser": 0}
    corner.run(
        pods.pod("user", slot=False, node=corner.one),
        pods.pod("root", slot=False, node=corner.one, security=root),
        pods.pod("slot", node=corner.one),
    )
    for name in ("user", "root"):
        assert "jupyter-gpu" not in corner.exec(name, "ls", "/dev")
        assert "NVIDIA_VISIBLE_DEVICES" not in corner.exec(name, "env")
    make = "mknod /tmp/gpu c 4 40"
    with pytest.raises(CommandFailed, match=r"not permitted|ermission denied"):
        corner.exec("user", "sh", "-c", make)
    corner.exec("root", "sh", "-c", make)
    assert not corner.opens("root", "/tmp/gpu")
    # A pod with a slot has the nodes and not the right.
    assert corner.exec("slot", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip() == "void"
    assert [corner.opens("slot", path) for path in corner.devices(corner.one)] == [False] * chart.GPUS


def test_all_containers_of_a_pod_have_its_rules(corner: World) -> None:
    """An init container, a second one with a slot, a restarted one, and a debugging one."""
    path = corner.devices(corner.one)[0]
    made = pods.pod("several", node=corner.one)
    (main,) = made["spec"]["containers"]
    peek = f"[ -c {path} ] || exit 99; ! (exec 3<>{path}) 2>{pods.LOGS}/said; grep 'not permitted' {pods.LOGS}/said"
    made["spec"]["initContainers"] = [{**main, "name": "before", "command": ["sh", "-c", peek]}]
    made["spec"]["containers"].append({**main, "name": "second"})
    corner.run(made)
    image = f"--image={main['image']}"
    corner.kubectl("debug", "several", image, "--container=guest", "--profile=baseline", "--", *pods.IDLE)

    def guest_runs() -> bool:
        status = json.loads(corner.kubectl("get", "pod", "several", "-o", "json"))["status"]
        return any("running" in each.get("state", {}) for each in status.get("ephemeralContainerStatuses", ()))

    corner.until(guest_runs, "the debugging container to run")
    corner.exec("several", "mknod", "/tmp/gpu", "c", *numbers(corner, path), container="guest")  # it is root

    def reach() -> list[bool]:
        others = [corner.opens("several", path, container=name) for name in ("main", "second")]
        return [*others, corner.opens("several", "/tmp/gpu", container="guest")]

    assert reach() == [False, False, False]
    corner.ask("several", chart.GPUS)
    corner.has("several", chart.GPUS * 1000)
    assert reach()[:2] == [True, True], "Both have a slot of the pod that was given the GPU."
    corner.ask("several", 0)
    corner.has("several", 0)
    assert reach() == [False, False, False]
    with contextlib.suppress(CommandFailed):  # the container may end before the command in it does
        corner.exec("several", "kill", "1", container="second")
    restarted = "{.status.containerStatuses[?(@.name=='second')].restartCount}"
    corner.until(lambda: corner.kubectl("get", "pod", "several", "-o", f"jsonpath={restarted}") == "1", "its restart")
    corner.until(lambda: corner.satisfied("several"), "the pod to run again")
    assert reach() == [False, False, False]


def numbers(corner: World, path: str) -> tuple[str, str]:
    """Major and minor number of a device of the first node, as `mknod` wants them."""
    gpu = next(gpu for gpu in corner.gpus[corner.one] if gpu.path == path)
    assert gpu.device
    return str(gpu.device.major), str(gpu.device.minor)


def rest(port: int, method: str, path: str, body: object = None) -> dict[str, Any]:
    """The answer of the Jupyter server in a pod to a request from outside, through that port of this machine."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/jupyter-gpu/api/v1/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"token {pods.TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def test_server_in_the_pod_and_kubectl_agree(product: Product) -> None:
    """A wish by REST with the pod's own token, one by `kubectl annotate`; each sees what the other did."""
    with world(product, NOTEBOOKS[0]) as found:
        found.run(pods.notebook("rest", product.notebook, node=found.one))
        with found.forwarded("rest", 8888) as port:
            until(lambda: rest(port, "GET", "status"), SECONDS, "the Jupyter server to answer")

            def seen(milli: int) -> bool:
                return bool(rest(port, "GET", "status")["amounts"] == settled(milli))

            rest(port, "PUT", "request", {"gpus": 1})
            state = found.has("rest", 1000)
            assert state.requested
            assert state.requested.generation >= 1
            found.until(lambda: seen(1000), "the server to see it")
            found.ask("rest", 2)
            found.has("rest", 2000)
            found.until(lambda: seen(2000), "the server to see the other")
            rest(port, "PUT", "request", {"gpus": 0})
            found.has("rest", 0)


def settled(milli: int) -> dict[str, int]:
    """Return what a server says when it has all that it asked for."""
    return {"requested": milli, "allocated": milli, "attached": milli, "draining": 0}


def test_shrink_takes_the_idle_gpu(corner: World) -> None:
    """The node reports which of two attached GPUs is open, and that one stays, whichever is the older."""
    corner.run(pods.pod("works", wants=2, node=corner.two))
    first, second = sorted(corner.has("works", 2000).usable)
    for stays, goes in ((second, first), (first, second)):
        with corner.holding("works", corner.path_of(stays)):

            def is_reported(stays: str = stays) -> bool:
                attached = corner.pod("works").attached
                return attached is not None and attached.open == (stays,)

            corner.until(is_reported, "the open GPU to be reported")
            corner.ask("works", 1)
            assert set(corner.has("works", 1000).usable) == {stays}
            assert corner.opens("works", corner.path_of(stays))
            assert not corner.opens("works", corner.path_of(goes))
        corner.ask("works", 2)
        assert set(corner.has("works", 2000).usable) == {first, second}
