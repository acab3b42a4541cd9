"""A pod says its public keys on its own socket, and they are in `attached`, whatever dies meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.model.annotations import WORKER, encode
from jupyter_gpu.model.service import Peer, WorkerIdentity
from tests.agent.stage import Api, Node, Pod
from tests.agent.test_start import SLOT, ask, ref, running
from tests.cluster.testbed import ControlPlane, until
from tests.model.test_service import KEY
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]
OTHER = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
WORKER_PEER = Peer(KEY, 47100)
NOTEBOOK_PEER = Peer(keys=(("w1", KEY), ("w2", OTHER)))


async def say(child: Child, path: Path, **body: Any) -> Any:
    """Answer to a process of the pod, whose connection stays open."""
    line = json.dumps({"put": "peer", **body}).encode() + b"\n"
    await asyncio.to_thread(
        child.run,
        "global s\n"
        "if 's' not in globals():\n"
        f"  s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect({str(path)!r})\n"
        f"s.sendall({line!r})",
    )
    answer = await asyncio.to_thread(child.run, "s.recv(4096)")
    return json.loads(answer)


async def hang_up(*children: Child) -> None:
    """End their connections."""
    for child in children:
        await asyncio.to_thread(child.run, "s.close()")


def until_says(pod: Pod, peer: Peer | None) -> None:
    until(lambda: (found := pod.attached) is not None and found.peer == peer, what=f"{peer} to be recorded", every=0.02)


async def test_keys_of_a_pod_are_recorded(quiet: Node) -> None:
    """A worker's before it has a GPU, and a notebook's beside its GPUs; its GPUs come and go without them."""
    worker, notebook = quiet.pod(), quiet.pod()
    worker.annotate(WORKER, encode(WorkerIdentity(notebook.uid, "w1")))
    first, server = worker.spawn(), notebook.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(worker), "main", SLOT)
        await plugin.agent.before_start(ref(notebook), "main", "slot-0001")
        path, other = (plugin.settings.slot_directory(slot) / "node.sock" for slot in (SLOT, "slot-0001"))
        assert await say(first, path, **WORKER_PEER.to_json()) == {"put": "peer"}
        await asyncio.to_thread(until_says, worker, WORKER_PEER)
        assert "no worker" in (await say(server, other, **WORKER_PEER.to_json()))["error"]
        assert await say(server, other, **NOTEBOOK_PEER.to_json()) == {"put": "peer"}
        notebook.allocate(quiet.uuids[0])
        await asyncio.to_thread(notebook.until_has, quiet.uuids[0])
        await asyncio.to_thread(until_says, notebook, NOTEBOOK_PEER)
        notebook.allocate(generation=2)
        await asyncio.to_thread(notebook.until_has)
        assert await say(server, other, keys={}) == {"put": "peer"}
        await asyncio.to_thread(until_says, notebook, None)
        assert worker.attached
        assert worker.attached.peer == WORKER_PEER
        await hang_up(first, server)


async def test_only_the_server_of_a_pod_says_its_keys(quiet: Node) -> None:
    """Not what it has started, and nobody outside of the pod. Another key in a loop is written a few times."""
    pod = quiet.pod()
    pod.annotate(WORKER, encode(WorkerIdentity("x", "w1")))
    server = pod.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        assert await say(server, path, **WORKER_PEER.to_json()) == {"put": "peer"}
        await asyncio.sleep(0.02)  # of a clock of hundredths
        kernel = pod.spawn()
        assert "Only the server" in (await say(kernel, path, key=OTHER, port=1))["error"]
        (answer,) = await ask(path, {"put": "peer", "key": OTHER, "port": 1})  # this process is in no pod
        assert "Only the server" in answer["error"]
        before = plugin.metrics.writes._value.get()
        answers = [await say(server, path, key=KEY, port=port) for port in range(1, 101)]
        refused = [answer for answer in answers if "too often" in answer.get("error", "")]
        assert 80 <= len(refused) <= 90
        await asyncio.to_thread(until_says, pod, Peer(KEY, 100 - len(refused)))
        assert plugin.metrics.writes._value.get() - before <= 20
        await hang_up(server, kernel)


@pytest.mark.parametrize(("step", "peer"), [("agent:said", WORKER_PEER), ("agent:written", NOTEBOOK_PEER)])
async def test_plugin_killed_at_each_step_of_a_pairing(quiet: Node, step: str, peer: Peer) -> None:
    """A key that it wrote is kept; one that it did not write is taken when the pod says it again."""
    pod = quiet.pod()
    if peer is WORKER_PEER:
        pod.annotate(WORKER, encode(WorkerIdentity("x", "w1")))
    code = (
        "import asyncio, json, sys; from pathlib import Path; from tests.agent import test_start as t\n"
        "from types import SimpleNamespace as N; from jupyter_gpu.model.service import Peer\n"
        "async def main():\n"
        " node = N(file=Path(sys.argv[1]), name=sys.argv[2], plane=N(kubeconfig=Path(sys.argv[3])))\n"
        " async with t.running(node) as plugin:\n"
        "  plugin.agent.put(sys.argv[4], Peer.from_json(json.loads(sys.argv[5])))\n"
        "  await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    words = [str(quiet.file), quiet.name, str(quiet.plane.kubeconfig), pod.uid, json.dumps(peer.to_json())]
    environment = {**os.environ, faults.VARIABLE: step, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (pod.attached and pod.attached.peer) == (peer if step == "agent:written" else None)
    async with running(quiet) as plugin:
        if step == "agent:said":
            plugin.agent.put(pod.uid, peer)
        pod.allocate(quiet.uuids[0])
        await asyncio.to_thread(pod.until_has, quiet.uuids[0])
        await asyncio.to_thread(until_says, pod, peer)


async def test_keys_outlive_the_plugin(quiet: Node) -> None:
    """The next process keeps what is recorded, and takes what the pod says anew."""
    pod = quiet.pod()
    pod.annotate(WORKER, encode(WorkerIdentity("x", "w1")))
    server = pod.spawn()
    async with running(quiet) as plugin:
        plugin.agent.put(pod.uid, WORKER_PEER)
        await asyncio.to_thread(until_says, pod, WORKER_PEER)
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        pod.allocate(quiet.uuids[0])
        await asyncio.to_thread(pod.until_has, quiet.uuids[0])
        until_says(pod, WORKER_PEER)
        assert await say(server, path, key=OTHER, port=47100) == {"put": "peer"}
        await asyncio.to_thread(until_says, pod, Peer(OTHER, 47100))
        await hang_up(server)


async def test_pod_on_a_node_without_gpus_says_its_keys(plane: ControlPlane, api: Api) -> None:
    """Slots are offered there where the administrator chose so, and the pod's socket serves as everywhere."""
    bare = Node(plane, api, simulated={"count": 0}, withoutGpus=True)
    try:
        pod = bare.pod()
        server = pod.spawn()
        async with running(bare) as plugin:
            assert plugin.inventory.problem == ""
            await plugin.agent.before_start(ref(pod), "main", SLOT)
            path = plugin.settings.slot_directory(SLOT) / "node.sock"
            assert await say(server, path, **NOTEBOOK_PEER.to_json()) == {"put": "peer"}
            await asyncio.to_thread(until_says, pod, NOTEBOOK_PEER)
            await hang_up(server)
    finally:
        bare.close()
