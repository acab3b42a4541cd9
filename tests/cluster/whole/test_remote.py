"""A notebook on one node runs cells on a GPU of the other one; its worker is killed, and the network is cut."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tornado.websocket import websocket_connect

from tests.cluster.whole import faults, pods
from tests.cluster.whole.states import PodState
from tests.cluster.whole.world import REMOTE, SECONDS, Product, World, world
from tests.deploy import product as chart

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

LOOK = """
import os, socket
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return False
    return True
def look():
    paths = sorted(f"/dev/jupyter-gpu/{name}" for name in os.listdir("/dev/jupyter-gpu"))
    return socket.gethostname(), os.environ["CUDA_VISIBLE_DEVICES"], [path for path in paths if opens(path)]
"""


class CellFailed(Exception):
    """An error of a cell."""


class Page:
    """A kernel of the notebook, as a page uses it."""

    def __init__(self, address: str) -> None:
        self._server = f"{address}:8888/api/kernels"
        headers = {"Authorization": f"token {pods.TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self._server}", b'{"name": "python3"}', headers, method="POST")
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            self._kernel = json.loads(answer.read())["id"]

    def run(self, code: str) -> str:
        """Return what a cell prints."""
        return asyncio.run(asyncio.wait_for(self._run(code), SECONDS))

    async def _run(self, code: str) -> str:
        channels = await websocket_connect(f"ws://{self._server}/{self._kernel}/channels?token={pods.TOKEN}")
        header = {"msg_id": "run", "msg_type": "execute_request", "session": "test", "username": "", "version": "5.3"}
        content = {"code": code, "silent": False, "allow_stdin": False, "store_history": True}
        request = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}
        await channels.write_message(json.dumps(request))
        printed, error = "", ""
        try:
            while True:
                message = json.loads(str(await channels.read_message()))
                if message["parent_header"].get("msg_id") != "run":
                    continue
                kind, found = message["msg_type"], message["content"]
                printed += found["text"] if kind == "stream" and found["name"] == "stdout" else ""
                error = f"{found['ename']}: {found['evalue']}" if kind == "error" else error
                if kind == "status" and found["execution_state"] == "idle":
                    break
        finally:
            channels.close()
        if error:
            raise CellFailed(error)
        return printed.strip()


@pytest.fixture(scope="module")
def corner(product: Product) -> Iterator[World]:
    """The namespace, a pod that has all GPUs of the first node, and a notebook there."""
    chart.load(product.cluster, "notebook", node=product.cluster.node_names[1])
    with world(product, REMOTE) as found:
        found.run(pods.pod("holder", node=found.one, wants={"milli": 4000, "placement": "local"}))
        found.run(pods.notebook("ann", product.notebook, node=found.one))
        yield found


@pytest.fixture(scope="module")
def page(corner: World) -> Page:
    """A kernel of the notebook with a GPU of the other node."""
    made = Page(corner.pod("ann").address)
    made.run(f"from jupyter_gpu import gpu\n{LOOK}")
    made.run("gpu.resize(1, timeout=80)")
    return made


def worker(corner: World) -> PodState:
    """Return the notebook's worker."""
    (found,) = (pod for pod in corner.history.pods() if pod.name.startswith("ann-gpu-"))
    return found


def test_cell_runs_on_the_other_node(corner: World, page: Page) -> None:
    """In the worker's pod, which can open that GPU and no other; the notebook's own pod can open none."""
    host, uuid, opened = literal_eval(page.run("print(gpu.run(look))"))
    there = worker(corner)
    assert (host, there.node) == (there.name, corner.two)
    assert uuid in [gpu.uuid for gpu in corner.gpus[corner.two]]
    assert opened == [corner.path_of(uuid)]
    assert page.run("%%gpu 1\nimport socket\nhere = socket.gethostname()\nprint(here)") == host
    assert page.run("print(here)") == host
    assert page.run("print([n for n in range(4) if opens(f'/dev/jupyter-gpu/gpu{n}')])") == "[]"


def test_worker_that_is_killed(corner: World, page: Page) -> None:
    """The cell fails and is not run again; the next one runs in the container that was started again."""
    state = worker(corner)
    (first,) = faults.processes(corner.cluster, "jupyter_gpu.worker", f"pod{state.uid}/", first=True)
    page.run("%%gpu 1\npid = 1")
    faults.end([first])
    corner.until(lambda: worker(corner).restarts > state.restarts, "the worker to be started again")
    assert page.run("%%gpu 1\nprint(socket.gethostname())" if False else "print(gpu.run(look)[0])") == state.name


def test_network_that_is_cut(corner: World, page: Page) -> None:
    """The cell fails; when the network is back, the namespace is as it was."""
    page.run("%%gpu 1\nimport os, threading\nlock = threading.Lock(); pid = os.getpid()")
    with cut(corner.pod("ann").address, worker(corner).address), pytest.raises(CellFailed, match="WorkerLost"):
        page.run("%%gpu 1\nimport time; time.sleep(60)")
    assert page.run("%%gpu 1\nprint(lock.locked(), os.getpid() == pid)") == "False True"


def test_gpu_is_given_back(corner: World, page: Page) -> None:
    """The kernel that rests there has it, and ends; the worker stays for a while."""
    page.run("gpu.release(timeout=60)")
    there = corner.until(lambda: worker(corner) if not worker(corner).usable else None, "the GPU to be given back")
    assert there
    assert there.ready


@contextmanager
def cut(one: str, other: str) -> Iterator[None]:
    """Drop all between two pods, without a word, until the end of the block."""
    rules: list[Any] = [("FORWARD", "-s", a, "-d", b, "-j", "DROP") for a, b in ((one, other), (other, one))]
    for rule in rules:
        subprocess.run(("iptables", "-w", "-I", *rule), check=True)
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(("iptables", "-w", "-D", *rule), check=True)
