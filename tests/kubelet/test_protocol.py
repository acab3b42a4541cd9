"""The kubelet's steps, one by one, against a kubelet that has only those."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from jupyter_gpu_node.kubelet import service
from jupyter_gpu_node.kubelet.protos import deviceplugin_v1beta1_pb2 as api
from jupyter_gpu_node.kubelet.rules.slots import PodRef, SlotOwner
from jupyter_gpu_node.settings import SLOT, Driver
from jupyter_gpu_node.shares.rules.settings import ShareSettings

from .stand_in import until
from .worlds import world


async def test_kubelet_learns_of_every_slot_and_asks_before_each_start() -> None:
    """The plugin serves before it registers: this kubelet asks for the options before it answers."""
    async with world() as w:
        plugin = await w.kubelet.plugin()
        assert plugin.resource == SLOT
        assert plugin.options is not None
        assert plugin.options.pre_start_required
        assert plugin.options.get_preferred_allocation_available
        assert plugin.health == {f"slot-{n:04}": "Healthy" for n in range(8)}
        assert w.kubelet.registrations == 1
        assert w.plugin.not_ready() == ""


async def test_allocate_prepares_a_container_and_gives_no_right() -> None:
    """The container gets all devices, the directory of the socket and the environment; no rule is changed."""
    async with world() as w:
        made = await w.kubelet.allocate("slot-0003")
        assert [(d.host_path, d.container_path, d.permissions) for d in made.devices] == [
            (f"{w.settings.state}/devices/gpu{i}", f"/dev/jupyter-gpu/gpu{i}", "rw") for i in range(4)
        ]
        assert [(m.host_path, m.container_path, m.read_only) for m in made.mounts] == [
            (f"{w.settings.run}/slots/slot-0003", "/run/jupyter-gpu", True)
        ]
        assert dict(made.envs)["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert w.settings.slot_directory("slot-0003").stat().st_mode & 0o777 == 0o755
        assert not w.guard.closed
        assert not w.owners.known


async def test_container_gets_the_gate_where_there_is_a_driver(tmp_path: Path) -> None:
    """It is at the driver's place, the driver behind it, and is recorded; not where the administrator forbids it."""
    library = tmp_path / "usr" / "lib64" / "libcuda.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    driver = Driver(root=tmp_path, seen=tmp_path)
    for enforce in (True, False):
        async with world(driver=driver, shares=ShareSettings(enforce=enforce)) as w:
            made = await w.kubelet.allocate("slot-0003")
            seen = {mount.container_path: mount.host_path for mount in made.mounts}
            gate = f"{w.settings.state}/gate/libcuda.so.1"
            assert seen["/usr/local/nvidia/lib64/libcuda.so.1"] == (gate if enforce else str(library))
            assert seen.get("/run/jupyter-gpu/driver/libcuda.so.1") == (str(library) if enforce else None)
            assert (w.settings.slot_directory("slot-0003") / "driver" / "libcuda.so.1").is_file()
            assert w.owners.gated == ({"slot-0003"} if enforce else set())
            await w.end()
            w.begin()
            assert w.owners.gated == ({"slot-0003"} if enforce else set()), "Also by the next node plugin."


async def test_two_slots_for_one_container_are_refused_in_words() -> None:
    """A slot is no GPU; the words say where the number of GPUs goes."""
    async with world() as w:
        with pytest.raises(grpc.aio.AioRpcError, match=r"asks for 2 slots.*jupyter-gpu.io/requested"):
            await w.kubelet.allocate("slot-0000", "slot-0001")
        with pytest.raises(grpc.aio.AioRpcError, match="does not exist on this node any more"):
            await w.kubelet.allocate("slot-0900")


async def test_pod_is_closed_before_its_container_starts() -> None:
    """The kubelet names only the slot; its pod comes from PodResources, the checkpoint and the API server."""
    async with world() as w:
        w.add("uid-1", "alice")
        await w.kubelet.allocate("slot-0002")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        await w.kubelet.before_start("slot-0002")
        ref = PodRef("uid-1", "team", "alice")
        assert w.guard.closed == [(ref, "main", "slot-0002")]
        assert w.owners.known == {"slot-0002": SlotOwner("slot-0002", ref, "main")}


async def test_refusing_guard_keeps_the_container_from_starting() -> None:
    """The kubelet gets its words."""
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        w.guard.refuse = "the kernel has no room for another program"
        with pytest.raises(grpc.aio.AioRpcError, match="no room for another program"):
            await w.kubelet.before_start("slot-0002")
        w.guard.refuse = ""
        await w.kubelet.before_start("slot-0002")


async def test_slot_without_a_known_owner_starts_no_container() -> None:
    """Neither PodResources nor the checkpoint has it."""
    async with world() as w:
        with pytest.raises(grpc.aio.AioRpcError, match="does not say which pod has slot-0001"):
            await w.kubelet.before_start("slot-0001")
        assert not w.guard.closed


async def test_pod_that_the_watch_does_not_show_yet_is_read() -> None:
    """A container may start before the watch shows its pod."""
    async with world() as w:
        w.add("uid-1", "alice", seen=False)
        w.kubelet.give("uid-1", "alice", "slot-0002")
        await w.kubelet.before_start("slot-0002")
        assert w.guard.closed[0][0].uid == "uid-1"


async def test_namesake_is_not_taken_for_the_pod() -> None:
    """The API server knows a new pod of that name; the kubelet still starts a container of the old one."""
    async with world() as w:
        w.add("uid-2", "alice", seen=False)
        w.kubelet.give("uid-1", "alice", "slot-0002")
        with pytest.raises(grpc.aio.AioRpcError, match="does not exist any more"):
            await w.kubelet.before_start("slot-0002")
        assert not w.guard.closed


async def test_api_server_makes_up_for_a_lost_checkpoint() -> None:
    """The same holds for a checkpoint in an unknown format."""
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        for text in (None, "{}", "not JSON", '{"Data": {"PodDeviceEntries": 7}}'):
            if text is None:
                w.kubelet.checkpoint.unlink()
            else:
                w.kubelet.checkpoint.write_text(text)
            await w.kubelet.before_start("slot-0002")
        assert {ref.uid for ref, _, _ in w.guard.closed} == {"uid-1"}
        assert len(w.guard.closed) == 4


async def test_while_the_api_server_is_away_only_known_containers_start_again() -> None:
    """A confirmed owner is remembered, by a restarted plugin too."""
    async with world() as w:
        w.add("uid-1", "alice", seen=False)
        w.kubelet.give("uid-1", "alice", "slot-0002")
        await w.kubelet.before_start("slot-0002")
        w.server = None
        await w.end()
        w.begin()
        await until(lambda: w.kubelet.registrations == 2, "a second registration")
        await w.kubelet.plugin()
        await w.kubelet.before_start("slot-0002")
        assert len(w.guard.closed) == 2
        w.kubelet.give("uid-2", "bob", "slot-0003")
        with pytest.raises(grpc.aio.AioRpcError, match="API server could not be asked"):
            await w.kubelet.before_start("slot-0003")


async def test_busy_kubelet_is_asked_again() -> None:
    """PodResources answers at most 100 questions a second."""
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        w.kubelet.busy = 3
        await w.kubelet.before_start("slot-0002")
        assert w.kubelet.questions >= 4


async def test_health_of_slots_changes_within_one_stream() -> None:
    """A node that can't serve offers no slots. A container that was promised one is refused before its start only."""
    async with world() as w:
        plugin = await w.kubelet.plugin()
        w.plugin.set_problem("the kernel has no BPF")
        await until(lambda: set(plugin.health.values()) == {"Unhealthy"}, "unhealthy slots")
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["slot-0000"])])
        await plugin.call("Allocate", request, api.AllocateResponse)  # to refuse it would end the pod for good
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0000")
        w.guard.refuse = "the kernel has no BPF"
        with pytest.raises(grpc.aio.AioRpcError, match="the kernel has no BPF"):
            await w.kubelet.before_start("slot-0000")
        w.plugin.set_problem("")
        await until(lambda: set(plugin.health.values()) == {"Healthy"}, "healthy slots")
        assert plugin.messages == 3
        assert w.kubelet.registrations == 1


async def test_hanging_guard_ends_at_the_deadline_and_blocks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet is answered long before it would give up, and others are served meanwhile."""
    monkeypatch.setattr(service, "START_SECONDS", 0.5)
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        w.guard.seconds = 1000
        hanging = asyncio.create_task(w.kubelet.before_start("slot-0002"))
        await w.kubelet.allocate("slot-0004")
        with pytest.raises(grpc.aio.AioRpcError, match=r"took longer than 0.5 seconds"):
            await hanging


async def test_allocate_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet has none, and does nothing else while it waits."""
    monkeypatch.setattr(service, "QUICK_SECONDS", 0.0)
    async with world() as w:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await w.kubelet.allocate("slot-0000")
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_slot_unused_for_longest_is_preferred() -> None:
    """A directory and a record do not change hands while an earlier owner is still cleaned up."""
    async with world() as w:
        await w.kubelet.allocate("slot-0000")
        plugin = await w.kubelet.plugin()
        asked = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=["slot-0001", "slot-0000", "slot-0005"], allocation_size=2
        )
        request = api.PreferredAllocationRequest(container_requests=[asked])
        answer = await plugin.call("GetPreferredAllocation", request, api.PreferredAllocationResponse)
        assert list(answer.container_responses[0].deviceIDs) == ["slot-0001", "slot-0005"]


async def test_kubelet_that_lost_its_checkpoint_cannot_give_a_slot_away_again() -> None:
    """Two pods would share what the node sends them."""
    runs = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    async with world() as w:
        w.add("uid-1", "alice", status=runs)
        w.kubelet.give("uid-1", "alice", "slot-0002")
        await w.kubelet.before_start("slot-0002")
        w.kubelet.given.clear()
        w.kubelet.checkpoint.unlink()
        with pytest.raises(grpc.aio.AioRpcError, match="which the pod team/alice still has"):
            await w.kubelet.allocate("slot-0002")
        del w.pods["uid-1"]
        await w.kubelet.allocate("slot-0002")
        assert not w.owners.known


async def test_container_waits_while_the_driver_is_away() -> None:
    """It was admitted just then: it gets the devices that there were, and starts as soon as they are back."""
    async with world() as w:
        node = w.settings.device_directory / "gpu2"
        node.unlink()
        made = await w.kubelet.allocate("slot-0002")
        assert [device.host_path for device in made.devices][2] == str(node)
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        with pytest.raises(grpc.aio.AioRpcError, match="gpu2 of a GPU is not there now"):
            await w.kubelet.before_start("slot-0002")
        assert not w.guard.closed
        await w.end()
        w.begin()  # the next plugin knows it too
        await until(lambda: w.kubelet.registrations == 2, "a second registration")
        await w.kubelet.plugin()
        with pytest.raises(grpc.aio.AioRpcError, match="gpu2 of a GPU is not there now"):
            await w.kubelet.before_start("slot-0002")
        node.touch()
        await w.kubelet.before_start("slot-0002")
        assert len(w.guard.closed) == 1


async def test_container_without_a_known_gpu_is_refused() -> None:
    """The kubelet is offered no slot then: only one that did not listen asks for it."""
    async with world() as w:
        w.gpus = ()
        with pytest.raises(grpc.aio.AioRpcError, match="GPUs of this node are not known now"):
            await w.kubelet.allocate("slot-0002")


async def test_container_on_a_node_without_gpus_gets_its_socket() -> None:
    """Where the administrator chose so; a GPU that comes later has no device in it."""
    async with world(without_gpus=True) as w:
        w.gpus = ()
        made = await w.kubelet.allocate("slot-0002")
        assert not made.devices
        assert [mount.container_path for mount in made.mounts] == ["/run/jupyter-gpu"]
        assert made.envs["JUPYTER_GPU_NODE_SOCKET"] == "/run/jupyter-gpu/node.sock"
        assert w.owners.devices["slot-0002"] == frozenset()
