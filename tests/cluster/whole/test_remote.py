"""A notebook on one node runs cells on GPUs of the other one, and whatever a worker needs breaks meanwhile."""

from __future__ import annotations

import json
import os
import time
from ast import literal_eval
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from jupyter_gpu.model.annotations import WORKER
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.remote.first_process import WorkerAddress
from jupyter_gpu.remote.rules import control
from tests.cluster.testbed import until
from tests.cluster.whole import faults, pods
from tests.cluster.whole.notebooks import CellFailed, NotebookKernel, cut, group_of, openers
from tests.cluster.whole.states import PodState
from tests.cluster.whole.test_limits import of_user, set_limit
from tests.cluster.whole.world import REMOTE, SECONDS, Product, World, world
from tests.deploy import product as chart
from tests.worker.every_port import EveryPort, Flood, listening
from tests.worker.pods import PORTS
from tests.worker.strangers import refused

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

LOOK = """
from jupyter_gpu import gpu
import os, socket
def opens(path):
    try:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return 0
def look():
    paths = sorted(f"/dev/jupyter-gpu/{name}" for name in os.listdir("/dev/jupyter-gpu"))
    opened = {path: opens(path) for path in paths}
    for number in filter(None, opened.values()):
        os.close(number)
    return socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES"), [path for path in paths if opened[path]]
"""
OPEN = 1 + 3 * control.CHANNELS + 1
"""Ports of a worker's pod that are open: the first process', those of three kernels of which one stands by, Dask's."""
GROWTH = 64 * 2**20
"""Bytes by which the processes of a pod may grow while garbage comes."""
WAITS = "import time\nprint('waits', flush=True)\nwhile True: time.sleep(.1)"
WAITS_FOR_FILE = """
import time
print('waits', flush=True)
while not os.path.exists('/tmp/go'): time.sleep(.1)
for number in opened: os.close(number)
"""


@pytest.fixture(scope="module")
def corner(product: Product) -> Iterator[World]:
    """The namespace, a pod that has all GPUs of the first node, and a notebook there."""
    chart.load(product.cluster, "notebook")
    with world(product, REMOTE) as found:
        found.kubectl("delete", "quota", "--all")
        found.run(pods.pod("holder", node=found.one, wants={"generation": 1, "milli": 4000, "placement": "local"}))
        found.run(of_user(pods.notebook("ann", product.notebook, node=found.one)))
        yield found


@pytest.fixture(scope="module")
def kernel(corner: World) -> NotebookKernel:
    """A kernel of the notebook."""
    made = NotebookKernel(corner.pod("ann").address)
    made.run(LOOK)
    return made


def worker(corner: World) -> PodState:
    """Return the notebook's worker; raises LookupError where there is none."""
    for pod in corner.history.pods():
        if WORKER in pod.annotations and not pod.deleting:
            return pod
    raise LookupError("The notebook has no worker.")


def has(pod: PodState, milli: int, *, generation: int) -> bool:
    """Return whether so much is usable, and no earlier wish will still take it back."""
    return bool(pod.attached and pod.attached.observed_generation == generation) and sum(pod.usable.values()) == milli


def test_worker_that_is_refused(corner: World, kernel: NotebookKernel) -> None:
    """The user reads why: a quota first, then an image that the other node does not have; then it runs."""
    corner.kubectl("delete", "quota", "small", "--ignore-not-found")
    kernel.run("gpu.resize(0)")
    corner.kubectl("create", "quota", "small", "--hard=count/pods=2")
    with suppress(LookupError):  # one of an earlier try is kept for a while, and the quota lets no other come
        corner.kubectl("delete", "pod", worker(corner).name)
    used = ("get", "quota", "small", "-o", "jsonpath={.status.used}")
    until(lambda: "2" in corner.kubectl(*used), SECONDS, "the quota to count", every=0.2)
    with corner.cluster.node(corner.two).without_image(corner.product.notebook):
        kernel.run("gpu.resize(1, wait=False)")
        is_told(kernel, "WorkerQuota", "exceeded quota: small")
        corner.kubectl("delete", "quota", "small")
        is_told(kernel, "WorkerImage", corner.product.notebook)
    kernel.run("gpu.wait(timeout=80)")
    assert worker(corner).node == corner.two


def test_cell_runs_on_the_other_node(corner: World, kernel: NotebookKernel) -> None:
    """Its process is in the worker's pod there, which can open that GPU and no other; the notebook's can open none."""
    host, uuid, opened = literal_eval(kernel.run("print(gpu.run(look))"))
    there = worker(corner)
    assert (host, there.node) == (there.name, corner.two)
    (gpu,) = (gpu for gpu in corner.gpus[corner.two] if gpu.uuid == uuid)
    assert opened == [gpu.path]
    assert gpu.device
    assert openers(gpu.device) == set()
    said = kernel.run("%%gpu 1\nimport socket, time\nheld = opens('" + gpu.path + "'); print(socket.gethostname())")
    assert said == host
    (pid,) = openers(gpu.device)
    assert f"pod{there.uid}" in group_of(pid)
    assert corner.cluster.node(corner.two).cgroup in group_of(pid)
    assert kernel.run("print([path for path in look()[2]], opens('" + gpu.path + "'))") == "[] 0"
    assert kernel.run("%%gpu 1\nos.close(held)\nprint(look()[2])") == str(opened)
    assert openers(gpu.device) == set()


def test_worker_that_is_killed(corner: World, kernel: NotebookKernel) -> None:
    """The cell fails; the next one runs in the container that was started again."""
    state = worker(corner)
    cell = kernel.start(f"%%gpu 1\n{WAITS}")
    cell.says("waits")
    faults.end(first_processes(corner, state))
    with pytest.raises(CellFailed, match="WorkerLost"):
        cell.result()
    assert kernel.run("print(gpu.run(look)[0])") == state.name
    assert worker(corner).restarts == state.restarts + 1


def test_worker_that_is_evicted(corner: World, kernel: NotebookKernel) -> None:
    """The cell fails; the next one waits for the pod that takes its place."""
    state = worker(corner)
    cell = kernel.start(f"%%gpu 1\n{WAITS}")
    cell.says("waits")
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": state.name}}
    path = f"/api/v1/namespaces/{corner.namespace}/pods/{state.name}/eviction"
    corner.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(about))
    with pytest.raises(CellFailed, match="WorkerLost"):
        cell.result()
    assert kernel.run("print(gpu.run(look)[0])") == state.name
    assert worker(corner).uid != state.uid


def test_network_that_is_cut(corner: World, kernel: NotebookKernel) -> None:
    """The cell fails; when the network is back, the namespace is as it was."""
    state = worker(corner)
    kernel.run("%%gpu 1\nimport threading, time\nlock = threading.Lock(); pid = os.getpid()")
    cell = kernel.start(f"%%gpu 1\n{WAITS}")
    cell.says("waits")
    with (
        cut(first_processes(corner, state)[0], corner.pod("ann").address),
        pytest.raises(CellFailed, match="WorkerLost"),
    ):
        cell.result()
    assert kernel.run("%%gpu 1\nprint(lock.locked(), os.getpid() == pid)") == "False True"


def test_worker_without_memory(corner: World, kernel: NotebookKernel) -> None:
    """The cell fails with the reason, and nothing else does: the next one runs in the same container."""
    state = worker(corner)
    with pytest.raises(CellFailed, match=f"The worker on {corner.two} has no memory left"):
        kernel.run("%%gpu 1\nfilled = bytearray(b'x') * 2**30")
    assert kernel.run("print(gpu.run(look)[0])") == state.name
    assert worker(corner).restarts == state.restarts


def test_what_cannot_be_sent(corner: World, kernel: NotebookKernel) -> None:
    """An argument that cannot be pickled, and one for which the worker has no memory: plain errors, and it goes on."""
    state = worker(corner)
    with pytest.raises(CellFailed, match="CannotSend"):
        kernel.run("import threading\ngpu.run(type, threading.Lock())")
    with pytest.raises(CellFailed, match=f"The worker on {corner.two} has no memory left"):
        kernel.run("import pickle\ngpu.run(type, pickle.PickleBuffer(bytearray(2**30)))")
    assert kernel.run("print(gpu.run(look)[0])") == state.name
    assert worker(corner).restarts == state.restarts


def test_cells_that_never_end(corner: World, kernel: NotebookKernel) -> None:
    """One keeps its GPU until it is interrupted; in a loop in C the end of its process helps, after some interrupts."""
    state = worker(corner)
    cell = kernel.start(f"%%gpu 1\nopened = [opens(path) for path in look()[2]]\n{WAITS}")
    cell.says("waits")
    kernel.ask("PUT", "jupyter-gpu/api/v1/request", {"gpus": 0, "overrule": True})
    corner.until(lambda: not worker(corner).granted and worker(corner).draining, "the GPU to be asked back")
    kernel.interrupt()
    with pytest.raises(CellFailed, match="KeyboardInterrupt"):
        cell.result()
    corner.until(lambda: not worker(corner).held, "the GPU to be closed")
    kernel.run("gpu.resize(1, timeout=80)")
    cell = kernel.start("%%gpu 1\nprint('waits', flush=True)\nsum(iter(int, 1))")
    cell.says("waits")

    def has_ended() -> bool:
        kernel.interrupt()
        return not cell.runs

    until(has_ended, SECONDS, "the cell to end", every=1)
    with pytest.raises(CellFailed, match="WorkerLost"):
        cell.result()
    assert kernel.run("print(gpu.run(look)[0])") == state.name
    assert worker(corner).restarts == state.restarts


def way_of(kernel: NotebookKernel) -> WorkerAddress:
    """Return the notebook's way to its worker, with its keys."""
    kernel.run("from jupyter_gpu.kernel.client import Client; from jupyter_gpu.remote.pod_workers import PodWorkers")
    kernel.run("from dataclasses import astuple")
    workers = kernel.ask("GET", "jupyter-gpu/api/v1/status")["workers"]
    assert isinstance(workers, list)
    name = workers[0]["id"]
    return WorkerAddress(*literal_eval(kernel.run(f"print(astuple(PodWorkers(Client)._address({name!r})))")))


def test_limit_holds_on_the_other_node(corner: World, kernel: NotebookKernel) -> None:
    """Requests in a loop get no more; when it is lowered, a GPU that a cell uses goes once the cell closes it."""
    state, start = worker(corner), len(corner.history.moments)
    set_limit(corner, max=2, grace="0s")
    kernel.run("for amount in (2, 0) * 10: gpu.resize(amount, wait=False)")
    corner.ask("ann", {"generation": 1000, "milli": 4000})
    corner.until(lambda: has(worker(corner), 2000, generation=1000), "the worker to have what the limit permits")
    since = [moment.state for moment in corner.history.moments[start:] if WORKER in moment.state.annotations]
    assert {pod.uid for pod in since} == {state.uid}
    assert max(sum(pod.held.values()) for pod in since) == 2000
    cell = kernel.start(f"%%gpu 1\nopened = [opens(path) for path in look()[2]]\n{WAITS_FOR_FILE}")
    cell.says("waits")
    set_limit(corner, max=0, grace="0s")
    corner.until(lambda: not worker(corner).granted and worker(corner).draining, "the limit to take the GPUs back")
    corner.exec(state.name, "touch", "/tmp/go")
    cell.result()
    corner.until(lambda: not worker(corner).held, "the GPU to be closed")
    corner.kubectl("delete", "gpulimits", "--all")
    corner.ask("ann", {"generation": 2000, "milli": 1000})  # the server may still know the limit
    corner.until(lambda: has(worker(corner), 1000, generation=2000), "the worker to have a GPU again")
    assert kernel.run("print(gpu.run(look)[0])") == state.name


def test_pairing_that_is_interrupted(corner: World, kernel: NotebookKernel) -> None:
    """Both node plugins, the worker and the notebook's server are killed while keys are new; then all begin again.

    The old keys open nothing any more.
    """
    state, ann, old = worker(corner), corner.pod("ann"), way_of(kernel)
    faults.end(first_processes(corner, state))
    corner.until(lambda: worker(corner).restarts > state.restarts, "the worker to start again")
    for node in corner.cluster.nodes:
        faults.hit(f"the node plugin of {node.name}", lambda node=node: faults.agents(corner, node))  # type: ignore[misc]
    faults.end(first_processes(corner, ann))
    corner.until(lambda: corner.pod("ann").restarts > ann.restarts and corner.pod("ann").ready, "the server")
    again = NotebookKernel(ann.address)
    again.run(LOOK)
    assert again.run("gpu.resize(1, timeout=80)\nprint(gpu.run(look)[0])") == state.name
    new = way_of(again)
    assert old.key != new.key
    assert refused(replace(old, key=new.key), new.port, zmq.DEALER)


def test_strangers_and_garbage(corner: World) -> None:
    """No port of the worker's pod lets anybody in without the keys of now, while and after 1,000,000 odd words come.

    The notebook's own cells run meanwhile; nothing that was recorded runs again; memory is bounded, no process ends.
    """
    ann, kernel = corner.pod("ann"), NotebookKernel(corner.pod("ann").address)
    kernel.run(f"{LOOK}\ngpu.resize(1, timeout=80)\ngpu.run(look)")
    old = way_of(kernel)
    faults.end(first_processes(corner, ann))  # the next server has other keys
    corner.until(lambda: corner.pod("ann").restarts > ann.restarts and corner.pod("ann").ready, "the server")
    kernel = NotebookKernel(ann.address)
    kernel.run(f"{LOOK}\ngpu.resize(1, timeout=80)\ngpu.run(look)")
    kernel.run("%%gpu 1\nkept = os.getpid()")
    state, way = worker(corner), way_of(kernel)
    owner = literal_eval(kernel.run("from jupyter_gpu.kernel.blocks import owner\nprint(tuple(owner()))"))
    with closing(EveryPort(way, replace(old, key=way.key), ReservationOwner(*owner))) as every:
        (first,) = first_processes(corner, state)
        until(lambda: len(listening(first)[0]) == OPEN, SECONDS, "a kernel to stand by", every=0.2)
        ports = every.refuse_strangers(first)
        assert ports <= set(range(control.PORT, control.PORT + PORTS))
        pids, before = processes_of(corner, state), memory(corner, state)
        flood = Flood(way, ports, words=1_000_000)
        flood.start()
        cells, most = 0, before
        while flood.is_alive():
            assert kernel.run("%%gpu 1\nprint(kept == os.getpid(), 6 * 7)") == "True 42"
            cells, most = cells + 1, max(most, memory(corner, state))
        assert flood.failed is None
        assert cells > 1
        assert most - before < GROWTH
        assert every.said("str(runs)") == "1"
        assert processes_of(corner, state) == pids
        every.refuse_strangers(first)
    assert kernel.run("%%gpu 1\nprint(kept == os.getpid())") == "True"
    assert worker(corner).restarts == state.restarts


def test_node_that_is_gone(corner: World) -> None:
    """The cell fails in time though nobody hangs up. Once the pod is to go, its part is had at home, and then there."""
    lost, kernel = worker(corner), NotebookKernel(corner.pod("ann").address)
    kernel.run(LOOK)
    cell = kernel.start(f"%%gpu 1\n{WAITS}")
    cell.says("waits")
    with corner.cluster.node(corner.two).unplugged():
        began = time.monotonic()
        with pytest.raises(CellFailed, match="WorkerLost"):
            cell.result()
        assert time.monotonic() - began < 40
        not_ready(corner, corner.two)
        corner.ask("holder", {"generation": 2, "milli": 3000, "placement": "local"})
        corner.delete(lost.name, wait=False)
        corner.has("ann", 1000)
        kernel.run("opened = [opens(path) for path in look()[2]]\nfor number in opened: os.close(number)")
        assert kernel.run("%%gpu 1\nprint(socket.gethostname(), len(opened))") == "ann 1"
    corner.until(lambda: lost.uid not in {pod.uid for pod in corner.history.pods()}, "the worker to be gone")
    kernel.run("gpu.resize(2, timeout=80)")
    assert sum(worker(corner).usable.values()) == 1000
    corner.until(lambda: corner.product.ready, "the other node")


def test_notebook_that_is_deleted_while_a_cell_runs(corner: World) -> None:
    """Its worker goes with it, and another pod gets all GPUs of that node."""
    state, last = worker(corner), NotebookKernel(corner.pod("ann").address)
    cell = last.start(f"%%gpu 1\n{WAITS}")
    cell.says("waits")
    corner.delete("ann", wait=False)
    corner.until(lambda: {pod.name for pod in corner.history.pods()} == {"holder"}, "notebook and worker to be gone")
    with pytest.raises((CellFailed, ConnectionError)):
        cell.result()
    corner.run(pods.pod("next", node=corner.two, wants={"generation": 1, "milli": 4000, "placement": "local"}))
    assert set(state.usable) <= set(corner.pod("next").usable)


def not_ready(corner: World, node: str) -> None:
    """Say of a node that it is not ready, as the cluster does itself after 50 seconds without a word of it."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    patch = json.dumps({"status": {"conditions": [ready]}})
    corner.cluster.kubectl("patch", "node", node, "--subresource=status", "-p", patch)


def first_processes(corner: World, state: PodState) -> list[int]:
    """Return the first process of the server, or of the worker, in a pod."""
    return faults.processes(corner.cluster, "jupyter", f"pod{state.uid}", first=True)


def processes_of(corner: World, state: PodState) -> set[int]:
    """Return all processes of a pod."""
    return set(faults.processes(corner.cluster, "", f"pod{state.uid}"))


def memory(corner: World, state: PodState) -> int:
    """Return the bytes of memory of all processes of a pod."""
    found = 0
    for pid in processes_of(corner, state):
        with suppress(OSError):
            found += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return found


def is_told(kernel: NotebookKernel, kind: str, words: str) -> None:
    """Wait until the notebook's user reads this."""

    def told() -> bool:
        conditions = kernel.ask("GET", "jupyter-gpu/api/v1/status")["conditions"]
        assert isinstance(conditions, list)
        return any(each["type"] == kind and words in each["message"] for each in conditions)

    until(told, SECONDS, f"the condition {kind} with {words!r}", every=0.2)
