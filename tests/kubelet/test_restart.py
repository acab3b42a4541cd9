"""Kubelet and plugin come and go, in every order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_gpu_node.kubelet import plugin as module
from jupyter_gpu_node.kubelet.pod_resources import PodResources, PodResourcesError
from jupyter_gpu_node.kubelet.registration import register
from jupyter_gpu_node.kubelet.slot_owners import SlotOwners
from jupyter_gpu_node.processes.folder_watch import FolderWatch

from .stand_in import until
from .worlds import world


async def test_restarted_kubelet_gets_the_plugin_again() -> None:
    """It removed the plugin's socket, knows of no plugin, and asks before each start as soon as it has one."""
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        for _ in range(3):
            before = w.kubelet.registrations
            await w.kubelet.restart()
            await w.kubelet.plugin("the plugin after the restart")
            assert w.kubelet.registrations > before  # twice, if its socket was new and was removed as well
            await w.kubelet.before_start("slot-0002")
        assert len(w.guard.closed) == 3


async def test_kubelet_that_was_away_for_long_finds_the_plugin() -> None:
    """Its socket lies there without a listener; when it comes, the plugin does not sit out a long pause."""
    async with world() as w:
        await w.kubelet.stop()
        await until(lambda: "did not take the plugin" in w.plugin.not_ready(), "a registration that fails")
        await w.kubelet.start()
        await w.kubelet.plugin("the plugin after the restart")
        assert w.plugin.not_ready() == ""


async def test_plugin_waits_for_a_kubelet_that_was_never_there() -> None:
    """Both start in any order when a machine boots."""
    async with world(start=False) as w:
        await w.kubelet.stop()
        for path in (w.kubelet.plugins / "kubelet.sock", w.settings.plugin_socket):
            path.unlink(missing_ok=True)
        await until(lambda: "is not there" in w.plugin.not_ready(), "a plugin that says what it waits for")
        await w.kubelet.start()
        await w.kubelet.plugin()


async def test_restarted_plugin_is_asked() -> None:
    """The end of the old stream must not take the new registration with it, however often that is tried."""
    async with world() as w:
        for count in (2, 3):
            await w.end()
            w.begin()
            await until(lambda count=count: w.kubelet.registrations >= count, "a registration")  # type: ignore[misc]
            await w.kubelet.plugin("the plugin after its restart")


async def test_registration_lost_with_an_older_stream_is_repeated() -> None:
    """The kubelet drops the present registration when any stream ends."""
    async with world() as w:
        plugin = await w.kubelet.plugin()
        plugin.stopped = True
        await plugin.channel.close()  # what the kubelet does to the wrong one
        await until(lambda: w.kubelet.current is not plugin, "another registration")
        assert (await w.kubelet.plugin()).stopped is False


async def test_old_stream_ends_before_the_plugin_registers_again() -> None:
    """A socket vanished under a living kubelet: its old stream still stands, and would end after the new one."""
    async with world() as w:
        old = await w.kubelet.plugin()
        order: list[bool] = []
        w.kubelet.on_register = lambda: order.append(old.stopped)
        w.settings.plugin_socket.unlink()
        await until(lambda: order, "another registration")
        assert order == [True]
        await until(lambda: w.kubelet.current is not old, "another plugin")
        await w.kubelet.plugin()


async def test_refusing_kubelet_is_asked_again_and_its_words_are_kept() -> None:
    """It may not know this version, or not be able to dial."""
    async with world(start=False) as w:
        refused: list[int] = []

        def refuse() -> None:
            if len(refused) < 2:
                refused.append(1)
                raise ValueError("requested API version is not supported")

        w.kubelet.on_register = refuse
        await until(lambda: "not supported" in w.plugin.not_ready(), "a reason")
        await w.kubelet.plugin()
        assert w.kubelet.registrations == 3


async def test_second_plugin_does_not_take_the_kubelet_from_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for a while, and then ends with a sentence."""
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.5)
    async with world() as w:
        first = w.task
        w.begin()
        with pytest.raises(TimeoutError, match="Another node plugin still runs"):
            await w.task
        assert w.kubelet.registrations == 1
        first.cancel()
        await asyncio.wait([first])


async def test_stopped_plugin_turns_the_kubelet_away() -> None:
    """Its socket is gone, its stream has ended, and no container with a slot starts."""
    async with world() as w:
        await w.kubelet.plugin()
        await w.end()
        assert not w.settings.plugin_socket.exists()
        await until(lambda: w.kubelet.current and w.kubelet.current.stopped, "the end of the stream")
        with pytest.raises(ConnectionError):
            await w.kubelet.before_start("slot-0000")
        assert w.plugin.not_ready() == "It has ended."


async def test_kubelet_does_not_ask_before_the_plugin_has_registered_again() -> None:
    """A gap of the kubelet, pinned here: the program on the pod's cgroup has to hold meanwhile, and it does."""
    async with world() as w:
        w.add("uid-1", "alice")
        w.kubelet.give("uid-1", "alice", "slot-0002")
        await w.kubelet.before_start("slot-0002")
        await w.kubelet.restart()
        w.kubelet.current = None
        await w.kubelet.before_start("slot-0002")
        assert len(w.guard.closed) == 1
        await w.kubelet.plugin()
        await w.kubelet.before_start("slot-0002")
        assert len(w.guard.closed) == 2


async def test_socket_that_stops_answering_ends_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet would wait for it without end."""
    monkeypatch.setattr(module, "TRY_SECONDS", 0.1)
    async with world() as w:

        async def silent(path: Path) -> bool:
            return await answers(path.with_name("nobody.sock"))

        answers = module.answers
        assert await answers(w.settings.plugin_socket)
        monkeypatch.setattr(module, "answers", silent)
        with pytest.raises(ExceptionGroup) as failure:
            await w.task
        assert "does not answer any more" in str(failure.value.exceptions[0])


@pytest.mark.parametrize("hint", [True, False], ids=["inotify", "polling"])
async def test_new_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hint: bool) -> None:
    """It is noticed by inotify, or by looking where the kernel has none."""
    missing = tmp_path / "not there"
    changes = FolderWatch(tmp_path if hint else missing, poll=60 if hint else 0.01)
    try:
        waiting = asyncio.create_task(changes.wait())
        await asyncio.sleep(0)
        (tmp_path / "kubelet.sock").touch()
        await asyncio.wait_for(waiting, 30)
    finally:
        changes.close()


async def test_missing_pod_resources_are_an_error_in_words(tmp_path: Path) -> None:
    """It is not a hang: a container's start waits for it."""
    with pytest.raises(PodResourcesError, match="does not say who has which device: no answer within"):
        await PodResources(tmp_path / "kubelet.sock", timeout=0.3).list("jupyter-gpu.io/slot")


async def test_stand_in_drops_the_newest_registration_as_the_kubelet_does() -> None:
    """The tests above rely on it: without it they could not fail."""
    async with world() as w:
        first = await w.kubelet.plugin()
        await register(w.settings.kubelet_socket, w.settings.plugin_socket.name, w.settings.resource)
        second = w.kubelet.current
        assert second is not None
        assert second is not first
        await first.channel.close()
        await until(lambda: second.stopped, "the newer one to be dropped")
        await until(lambda: w.kubelet.current is not second, "a third registration")
        await w.kubelet.plugin()


async def test_leftovers_of_a_pod_are_removed_after_a_restart() -> None:
    """Its record, its socket and its directory go. What the kubelet still reports stays, and is reported."""
    async with world() as w:
        for number, name in ((1, "alice"), (2, "bob"), (3, "carol")):
            w.add(f"uid-{number}", name)
            w.kubelet.give(f"uid-{number}", name, f"slot-000{number}")
            await w.kubelet.before_start(f"slot-000{number}")
            (w.settings.slot_directory(f"slot-000{number}") / "node.sock").touch()
        assert set(w.owners.known) == {"slot-0001", "slot-0002", "slot-0003"}
        await w.end()
        w.pods.clear()
        w.add("uid-3", "carol")
        w.kubelet.given = w.kubelet.given[1:]  # it has forgotten alice's pod, and not yet bob's
        w.kubelet.write_checkpoint()
        (w.settings.run / "slots" / "not-ours").mkdir()
        (w.settings.run / "slots" / "not-ours" / "file").touch()
        w.begin()
        found = await w.owners.reconcile()
        assert [owner.pod.name for owner in found.orphaned] == ["alice"]
        assert found.stuck == ("slot-0002",)
        left = sorted(path.name for path in (w.settings.run / "slots").iterdir())
        assert left == ["not-ours", "slot-0002", "slot-0003"]
        again = SlotOwners(w.settings, lambda: w.pods, w.fetch)
        assert set(again.known) == {"slot-0002", "slot-0003"}


async def test_slot_being_given_away_keeps_its_directory() -> None:
    """No list names it until its container starts."""
    async with world() as w:
        await w.kubelet.allocate("slot-0004")
        found = await w.owners.reconcile()
        assert "slot-0004" not in found.owners
        assert w.settings.slot_directory("slot-0004").is_dir()
