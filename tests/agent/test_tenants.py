"""A tenant cannot make its neighbours wait: pods with very many open files, and GPUs that are kept open."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_node.__main__ import Plugin
from jupyter_gpu_node.holders import scanner
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.processes.rules.scan_budget import EACH
from tests.agent.stage import PATIENCE, Node, Pod
from tests.agent.test_start import running
from tests.node.conftest import Child
from tests.node.processes.test_device_scan import HOARD, MANY

pytestmark = [pytest.mark.root, pytest.mark.cluster]


async def given(plugin: Plugin, node: Node, number: int) -> tuple[Pod, Child]:
    """A pod with one process that has a GPU open."""
    pod = node.pod()
    child = pod.spawn()
    pod.allocate(node.uuids[number])
    await asyncio.to_thread(pod.until_has, node.uuids[number])
    child.run(f"held = open_device({str(node.nodes[number])!r})")
    return pod, child


async def hoarder(node: Node, processes: int = 2) -> tuple[Pod, list[Child]]:
    """A pod with more open files than a scan reads."""
    assert processes * MANY > EACH
    pod, first = await asyncio.to_thread(node.running)
    children = [first, *(pod.spawn() for _ in range(processes - 1))]
    for child in children:
        await asyncio.to_thread(child.run, HOARD)
    return pod, children


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait for it, very long."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.02)


def pass_on(giver: Child, taker: Child, path: Path) -> None:
    """Pass on what ``giver`` holds, over a socket."""
    taker.run(f"server = socket.socket(socket.AF_UNIX); server.bind({str(path)!r}); server.listen()")
    giver.run(f"wire = socket.socket(socket.AF_UNIX); wire.connect({str(path)!r})")
    giver.run("socket.send_fds(wire, [b'x'], [held]); os.close(held)")
    taker.run("wire, _ = server.accept(); got = socket.recv_fds(wire, 1, 1)[1][0]")


async def test_scans_do_not_take_longer_because_of_a_neighbour(quiet: Node) -> None:
    """A pod with very many open files is left out, and reported; side by side with the same scan without it."""
    async with running(quiet) as plugin:

        async def spent() -> tuple[float, HolderScan]:
            times = []
            for _ in range(5):
                begin = time.thread_time_ns()
                scan = await asyncio.to_thread(scanner.scan_holders, plugin.inventory.seen.values(), {}, {})
                begin = time.perf_counter_ns()
                scan = await asyncio.to_thread(scanner.scan_holders, plugin.inventory.seen.values(), {}, {})
                times.append(time.perf_counter_ns() - begin)
            return min(times), scan

        before, scan = await spent()
        assert not scan.over
        pod, _ = await hoarder(quiet, 3)
        after, scan = await spent()
        assert set(scan.over) == {pod.uid}
        begin = time.perf_counter_ns()
        assert not (await plugin.scanner.search(pod.uid, plugin.inventory.seen, None)).over
        alone = time.perf_counter_ns() - begin
        assert after - before < alone / 2, f"{before / 1e6} → {after / 1e6} ms; the whole pod: {alone / 1e6} ms"


async def test_the_releases_of_neighbours_and_its_own_are_proven(quiet: Node) -> None:
    """Searched by itself, a pod with very many open files is shown to have nothing open."""
    async with running(quiet) as plugin:
        pod, child = await given(plugin, quiet, 0)
        hoard, children = await hoarder(quiet)
        hoard.allocate(quiet.uuids[1])
        await asyncio.to_thread(hoard.until_has, quiet.uuids[1])
        children[-1].run(f"held = open_device({str(quiet.nodes[1])!r})")
        for one in (pod, hoard):
            one.allocate(generation=2)
        await asyncio.to_thread(hoard.until_has, draining=(quiet.uuids[1],))
        child.run("os.close(held)")
        await asyncio.to_thread(pod.until_has)
        assert hoard.draining == [quiet.uuids[1]]
        children[-1].run("os.close(held)")
        await asyncio.to_thread(hoard.until_has)


async def test_descriptor_among_very_many_files_is_found(quiet: Node, tmp_path: Path) -> None:
    """It was passed on: no pod is granted the GPU until the search has found it, and its process is ended."""
    async with running(quiet) as plugin:
        pod, child = await given(plugin, quiet, 0)
        hoard, children = await hoarder(quiet)
        await asyncio.to_thread(pass_on, child, children[0], tmp_path / "s")
        pod.allocate(generation=2)
        await asyncio.to_thread(pod.until_has, draining=(quiet.uuids[0],))

        async def ended() -> bool:
            await plugin.audit.once()
            return children[0].process.poll() is not None

        while not await ended():
            assert pod.draining == [quiet.uuids[0]]
            await asyncio.sleep(0.1)
        await asyncio.to_thread(pod.until_has)
        assert children[1].process.poll() is None
        await until(lambda: "GpuIntruder" in hoard.events(), "the event")


async def test_process_beyond_the_budget_of_a_search_is_ended(quiet: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it counts as one that has every GPU; so no pod keeps what its neighbours gave back for ever."""
    monkeypatch.setattr(scanner, "MOST", 2.5 * MANY)
    async with running(quiet) as plugin:
        pod, child = await given(plugin, quiet, 0)
        hoard, children = await hoarder(quiet, 3)
        pod.allocate(generation=2)
        child.run("os.close(held)")
        await asyncio.to_thread(pod.until_has, draining=(quiet.uuids[0],))
        await until(lambda: pod.attached and pod.attached.draining[0].holders, "the holder to be told")
        assert pod.attached
        assert all(holder.foreign for holder in pod.attached.draining[0].holders)
        while all(one.process.poll() is None for one in children):
            await plugin.audit.once()
            await asyncio.sleep(0.1)
        await asyncio.to_thread(pod.until_has)
        assert sum(one.process.poll() is None for one in children) == 2
        await until(lambda: "GpuIntruder" in hoard.events(), "the event")


async def test_unknown_pod_beyond_the_budget_delays_only_its_own_gpus(
    quiet: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start of the plugin, the pod does not count as one without GPUs, nor does it keep all GPUs of the node."""
    monkeypatch.setattr(scanner, "MOST", 1.5 * MANY)
    async with running(quiet):
        hoard, children = await hoarder(quiet)
    pod = quiet.pod()
    child = pod.spawn()
    pod.allocate(quiet.uuids[0])
    async with running(quiet) as plugin:
        member = plugin.agent.managed[hoard.uid]
        while all(one.process.poll() is None for one in children):
            assert not member.holdings_known
            await plugin.audit.once()
            await asyncio.sleep(0.1)
        await until(lambda: member.holdings_known, "the rest of it to be searched")
        assert not hoard.draining
        await asyncio.to_thread(pod.until_has, quiet.uuids[0])
        assert child.probe(quiet.nodes[0]) == "+"


async def test_gpu_that_is_kept_open_is_scanned_rarely(quiet: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the same descriptor is there; its end is noticed at once, whether its process ends or not."""
    async with running(quiet) as plugin:
        pod, child = await given(plugin, quiet, 0)
        second = pod.spawn()
        second.run(f"held = open_device({str(quiet.nodes[0])!r})")
        scans: list[int] = []
        scan = scanner.scan_holders

        def counted(*some: Any, **named: Any) -> HolderScan:
            scans.append(1)
            return scan(*some, **named)

        monkeypatch.setattr(scanner, "scan_holders", counted)
        pod.allocate(generation=2)
        await asyncio.to_thread(pod.until_has, draining=(quiet.uuids[0],))
        await asyncio.sleep(4)
        assert 1 <= len(scans) <= 2
        child.run("os.close(held)")
        await asyncio.sleep(3)
        assert len(scans) <= 3
        assert pod.draining == [quiet.uuids[0]]
        second.end()
        begin = time.monotonic()
        await asyncio.to_thread(pod.until_has)
        assert time.monotonic() - begin < 10
        assert len(scans) <= 5
