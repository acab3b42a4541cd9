"""The kubelet's call before a container starts, and the pod's socket: the plugin's own parts, in this process."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, kubeconfig
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED
from jupyter_gpu_node import settings as settings_module
from jupyter_gpu_node import uninstall
from jupyter_gpu_node.__main__ import Plugin
from jupyter_gpu_node.agent.agent import CannotGuard
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.signals import identify
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.rules.violations.violation_records import ViolationRecord
from tests.agent.stage import COUNT, Node, Pod
from tests.cluster.testbed import until

pytestmark = [pytest.mark.root, pytest.mark.cluster]
SLOT = "slot-0000"


@asynccontextmanager
async def running(node: Node) -> AsyncIterator[Plugin]:
    """Agent and inventory of a plugin, without a kubelet."""
    settings = settings_module.load(node.file, {"NODE_NAME": node.name})
    async with Kube(kubeconfig(node.plane.kubeconfig), deadline=10) as kube:
        plugin = Plugin(settings, kube)
        await plugin.inventory.begin()
        tasks = [asyncio.create_task(part.run()) for part in (plugin.agent, plugin.inventory)]
        await asyncio.wait_for(plugin.agent.synced.wait(), 60)
        await plugin.sharing.begin()
        try:
            yield plugin
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await plugin.sharing.close()
            await plugin.sockets.close()
            await plugin.recorder.close()
            plugin.scanner.close()
            plugin.inventory.close()


def ref(pod: Pod) -> PodRef:
    return PodRef(pod.uid, "default", pod.name)


async def test_container_in_the_v1_tree_alone_is_not_started(quiet: Node) -> None:
    """Its pod is guarded, and its first process is in the v1 tree alone: the rules would not hold for it."""
    devices = cgroup.mounts().devices
    if devices is None:
        pytest.skip("this machine has no cgroup v1")
    pod = quiet.pod()
    group = Path(devices.mount) / quiet.top.name / "kubepods" / "besteffort" / f"pod{pod.uid}"
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        group.mkdir(parents=True)
        child = pod.spawn(inside=False)
        try:
            cgroup.enter(group, child.pid)
            with pytest.raises(CannotGuard, match=r"out of the cgroup v2 tree.*So its container main is not started"):
                await plugin.agent.before_start(ref(pod), "main", SLOT)
        finally:
            child.end()
            for directory in (group, *group.parents[:3]):
                directory.rmdir()


async def test_container_in_another_group_is_not_started(quiet: Node) -> None:
    """The pod still runs in the group of another cgroup driver; once it does not, the new group is guarded."""
    pod = quiet.pod()
    old = pod.spawn()
    new = quiet.top / "kubepods.slice" / "kubepods-besteffort.slice"
    new /= f"kubepods-besteffort-pod{pod.uid.replace('-', '_')}.slice"
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        new.mkdir(parents=True)
        with pytest.raises(CannotGuard, match="its next container would run in"):
            await plugin.agent.before_start(ref(pod), "main", SLOT)
        old.end()
        await asyncio.to_thread(until, lambda: not cgroup.populated(pod.group))
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        child = pod.spawn(inside=False)
        cgroup.enter(new, child.pid)
        assert child.probe(*quiet.nodes) == "----"
        child.end()
        await asyncio.to_thread(until, lambda: not cgroup.populated(new))


async def ask(path: Path, *questions: Any) -> list[Any]:
    """Answers to JSON lines on one connection."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2**20)
    answers = []
    for question in questions:
        writer.write((question if isinstance(question, bytes) else json.dumps(question).encode()) + b"\n")
        answers.append(json.loads(await asyncio.wait_for(reader.readline(), 60)))
    writer.close()
    return answers


async def test_pod_is_closed_before_its_first_container(quiet: Node) -> None:
    """Nothing can be opened once the call returns; a second call, after a grant, leaves the grant."""
    pod = quiet.pod()
    child = pod.spawn()  # stands for the sandbox
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        assert child.probe(*quiet.nodes) == "-" * COUNT
        pod.allocate(quiet.uuids[0])
        await asyncio.to_thread(pod.until_has, quiet.uuids[0])
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        assert child.probe(*quiet.nodes) == "+---"
        assert "GpusNotGuarded" not in pod.events()


async def test_the_order_of_kubelet_and_api_server_does_not_matter(quiet: Node) -> None:
    """A decision that came first is carried out as soon as there is something to guard."""
    pod = quiet.pod(group=False)
    pod.allocate(quiet.uuids[2])
    async with running(quiet) as plugin:
        pod.make_group()
        child = pod.spawn()
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        await asyncio.to_thread(pod.until_has, quiet.uuids[2])
        assert child.probe(*quiet.nodes) == "--+-"


async def test_pod_without_a_group_does_not_start(quiet: Node) -> None:
    """A pod that cannot be guarded is not started; the text is for the user."""
    pod = quiet.pod(group=False)
    async with running(quiet) as plugin:
        with pytest.raises(CannotGuard, match="control group of pod default/"):
            await plugin.agent.before_start(ref(pod), "main", SLOT)
        with pytest.raises(CannotGuard, match="not the uid"):
            await plugin.agent.before_start(PodRef("../..", "default", "x"), "main", SLOT)


async def test_a_group_that_was_made_anew_is_closed_anew(quiet: Node) -> None:
    """The kubelet removed it and made it again under the same name: no rules are left on it."""
    pod = quiet.pod()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        pod.remove_group()
        pod.make_group()
        child = pod.spawn()
        assert child.probe(*quiet.nodes) == "+" * COUNT
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        assert child.probe(*quiet.nodes) == "-" * COUNT


async def test_pod_can_ask_about_the_node_and_itself(quiet: Node) -> None:
    """All GPUs of the node, and load and users of its own ones; any user of the container may ask."""
    pod, other = quiet.pod(), quiet.pod()
    child = pod.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        await plugin.agent.before_start(ref(other), "main", "slot-0001")
        pod.allocate(quiet.uuids[1])
        await asyncio.to_thread(pod.until_has, quiet.uuids[1])
        child.run(f"global held; held = open_device({str(quiet.nodes[1])!r})")
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        assert path.stat().st_mode & 0o777 == 0o666
        about, sample, odd, worse = await ask(path, {"get": "node"}, {"get": "sample"}, {"get": "all"}, b"{")
        assert about["node"] == quiet.name
        assert about["simulated"] is True
        assert [gpu["uuid"] for gpu in about["gpus"]] == list(quiet.uuids)
        assert list(sample["loads"]) == list(sample["kinds"]) == [quiet.uuids[1]]
        assert sample["kinds"][quiet.uuids[1]]["memory"] > 0
        assert [holder["pid"] for holder in sample["holders"][quiet.uuids[1]]] == [child.pid]
        (details,) = await ask(path, {"get": "details"})
        assert list(details["gpus"]) == [quiet.uuids[1]]
        (use,) = details["gpus"][quiet.uuids[1]]["processes"]
        assert (use["pid"], use["memory"] > 0) == (child.pid, True)
        (totals,) = await ask(path, {"get": "totals"})
        assert totals == {"gpus": COUNT, "free": 1000 * (COUNT - 1), "used": 1000, "waiting": 0}
        assert "others" not in details["gpus"][quiet.uuids[1]]
        assert "error" in odd
        assert "error" in worse
        (nothing,) = await ask(path.parent.parent / "slot-0001" / "node.sock", {"get": "sample"})
        assert nothing == {"loads": {}, "holders": {}, "kinds": {}}
        (nothing,) = await ask(path.parent.parent / "slot-0001" / "node.sock", {"get": "details"})
        assert nothing == {"gpus": {}}
        (long,) = await ask(path, b"x" * 10_000)
        assert "at most" in long["error"]


async def test_pod_hears_its_state(quiet: Node) -> None:
    """Without asking the API server: what is requested, decided and attached; the last when its write is answered."""
    pod, other = quiet.pod(), quiet.pod()
    pod.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        await plugin.agent.before_start(ref(other), "main", "slot-0001")
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        states = heard(path)
        await first_state(states, lambda told: told["uid"] == pod.uid)
        other.allocate(quiet.uuids[0])
        pod.allocate(quiet.uuids[1])
        await first_state(states, lambda told: quiet.uuids[1] in told["annotations"].get(ALLOCATED, ""))
        last = await first_state(states, lambda told: quiet.uuids[1] in told["annotations"].get(ATTACHED, ""))
        assert quiet.uuids[0] not in str(last)
        found = await asyncio.to_thread(pod.json)
        assert (last["resourceVersion"], last["name"]) == (objects.resource_version(found), objects.name(found))
        again = heard(path)
        assert await anext(again) == last
        for each in (states, again):
            await each.aclose()


async def heard(path: Path) -> AsyncGenerator[Any, None]:
    """Metadata of the pod as its socket tells it."""
    reader, writer = await asyncio.open_unix_connection(path, limit=2**20)
    writer.write(b'{"get": "pod"}\n')
    try:
        while line := await asyncio.wait_for(reader.readline(), 60):
            state = json.loads(line)
            assert (state["gone"], state["trouble"]) == (False, "")
            if state["pod"]:
                yield state["pod"]["metadata"]
    finally:
        writer.close()


async def first_state(states: AsyncGenerator[Any, None], condition: Callable[[Any], bool]) -> Any:
    """Return the first state that fulfils the condition."""
    async for state in states:
        if condition(state):
            return state
    raise AssertionError("the connection ended")


async def test_reused_slot_answers_for_the_next_pod(quiet: Node) -> None:
    """The same directory then speaks for the new pod, and is silent when that is gone."""
    first, second = quiet.pod(), quiet.pod()
    async with running(quiet) as plugin:
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        await plugin.agent.before_start(ref(first), "main", SLOT)
        await plugin.agent.before_start(ref(second), "main", SLOT)
        second.allocate(quiet.uuids[0])
        await asyncio.to_thread(second.until_has, quiet.uuids[0])
        (sample,) = await ask(path, {"get": "sample"})
        assert list(sample["loads"]) == [quiet.uuids[0]]
        second.remove_group()
        second.delete()
        async with asyncio.timeout(60):
            while path.exists():
                await asyncio.sleep(0.05)


def test_pod_stays_closed_when_the_plugin_dies_before_its_answer(quiet: Node) -> None:
    """The kubelet got no answer and asks the next process: the pod has been closed all the time."""
    pod = quiet.pod()
    child = pod.spawn()
    code = (
        "import asyncio, sys; from pathlib import Path; from tests.agent import test_start as t\n"
        "from types import SimpleNamespace as N; from jupyter_gpu_node.kubelet.rules.slots import PodRef\n"
        "async def main():\n"
        " node = N(file=Path(sys.argv[1]), name=sys.argv[2], plane=N(kubeconfig=Path(sys.argv[3])))\n"
        " async with t.running(node) as plugin:\n"
        "  await plugin.agent.before_start(PodRef(sys.argv[4], 'default', 'x'), 'main', 'slot-0000')\n"
        "asyncio.run(main())\n"
    )
    words = [str(quiet.file), quiet.name, str(quiet.plane.kubeconfig), pod.uid]
    environment = {**os.environ, faults.VARIABLE: "agent:closed", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert child.probe(*quiet.nodes) == "-" * COUNT
    quiet.start()
    pod.allocate(quiet.uuids[0])
    pod.until_has(quiet.uuids[0])
    assert "GpusNotGuarded" not in pod.events()


async def test_unusable_slot_affects_its_own_pod_alone(quiet: Node) -> None:
    """A slot whose directory cannot be used keeps its own pod from a GPU, and no other; it is tried again."""
    sick, well = quiet.pod(), quiet.pod()
    children = [pod.spawn() for pod in (sick, well)]
    async with running(quiet) as plugin:
        task = asyncio.create_task(plugin.sharing.run())
        await plugin.agent.before_start(ref(sick), "main", SLOT)
        await plugin.agent.before_start(ref(well), "main", "slot-0001")
        shares = plugin.settings.slot_directory(SLOT) / "shares"
        shares.rmdir()
        shares.write_text("no folder")
        for pod in (sick, well):
            pod.allocate((quiet.uuids[0], 250))
        await asyncio.to_thread(well.until_has, quiet.uuids[0])
        with pytest.raises(CannotGuard, match="cannot be"):
            await plugin.agent.before_start(ref(sick), "main", SLOT)
        await plugin.agent.before_start(ref(well), "main", "slot-0001")
        assert [child.probe(quiet.nodes[0]) for child in children] == ["-", "+"]
        shares.unlink()
        await asyncio.to_thread(sick.until_has, quiet.uuids[0])
        assert children[0].probe(quiet.nodes[0]) == "+"
        task.cancel()


async def test_pod_hears_why_its_shares_are_only_counted(quiet: Node) -> None:
    """In words; the container's first process is its server, whichever connected before."""
    pod = quiet.pod()
    first = pod.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        path = plugin.settings.slot_directory(SLOT) / "node.sock"
        second = pod.spawn()
        for child in (second, first):
            connect = f"global s; s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r})"
            await asyncio.to_thread(child.run, f'{connect}; s.sendall(b\'{{"get": "sample"}}\\n\')')
            await asyncio.to_thread(child.run, "s.recv(1)")
        assert [one.pid for one in plugin.sockets.servers] == [first.pid]
        (about,) = await ask(path, {"get": "node"})
        assert about["shares"] == {"problem": "it has not been put into place yet", "taken": {}}
        plugin.gate.install()
        (about,) = await ask(path, {"get": "node"})
        assert about["shares"]["problem"] == "simulated GPUs have no driver"
        await plugin.owners.given(SLOT, gated=True)
        (about,) = await ask(path, {"get": "node"})
        assert about["shares"]["problem"] == ""


def test_uninstalling_lets_stopped_programs_run(quiet: Node) -> None:
    """No other process would."""
    quiet.start()
    pod, child = quiet.running()
    quiet.stop()
    settings = settings_module.load(quiet.file, {"NODE_NAME": quiet.name})
    stopped = identify(child.pid)
    assert stopped
    stopped_processes.save(settings.violations, {"GPU-1": {pod.uid: ViolationRecord(stopped=frozenset({stopped}))}})
    signals.stop([stopped])
    assert "1 stopped programs run again." in uninstall.uninstall(settings)
    assert child.run("1 + 1") == 2
    assert not settings.violations.exists()


def test_uninstalling_opens_nothing(quiet: Node) -> None:
    """Pins and files are gone; a pod that still runs keeps what it has, and gets no more."""
    quiet.start()
    pod, child = quiet.running()
    pod.allocate(quiet.uuids[0])
    pod.until_has(quiet.uuids[0])
    quiet.stop()
    settings = settings_module.load(quiet.file, {"NODE_NAME": quiet.name})
    lines = uninstall.uninstall(settings)
    assert any("still run" in line for line in lines)
    assert quiet.pins() == []
    assert child.probe(*quiet.nodes) == "+---"
    assert settings.device_directory.exists()
    pod.remove_group()
    uninstall.uninstall(settings)
    assert not settings.device_directory.exists()
    assert uninstall.uninstall(settings) == []
    with contextlib.suppress(OSError):
        settings.state.rmdir()
