"""The plugin as a process that dies or hangs, beside a kubelet that would wait for it without end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from jupyter_gpu_node import supervision

from .stand_in import Kubelet, running, until
from .worlds import home

CODE = """
import asyncio, os, sys, threading, time
from pathlib import Path
from jupyter_gpu_node import supervision
from jupyter_gpu_node.kubelet.slot_owners import SlotOwners
from jupyter_gpu_node.kubelet.plugin import DevicePlugin
from jupyter_gpu_node.kubelet.service import Service
from tests.kubelet.worlds import gpus, pod, settings

supervision.STUCK_SECONDS = 3

class Guard:
    async def before_start(self, pod, container, slot):
        HANG

async def main():
    chosen = settings(Path(sys.argv[1]))
    async def no_pod(namespace, name):
        return None
    owners = SlotOwners(chosen, lambda: {"uid-1": pod("uid-1", "alice")}, no_pod)
    await supervision.supervise({"plugin": DevicePlugin(chosen, Service(chosen, gpus, Guard(), owners)).run()})

asyncio.run(main())
"""
HANGS = {
    "a loop that stands still": "time.sleep(1000)",
    "a thread that crashes": "threading.Thread(target=lambda: 1 / 0).start(); await asyncio.sleep(1000)",
}


def begin(base: Path, hang: str) -> subprocess.Popen[bytes]:
    """A plugin as a process."""
    return subprocess.Popen([sys.executable, "-c", CODE.replace("HANG", hang), str(base)], stderr=subprocess.DEVNULL)


async def ended(child: subprocess.Popen[bytes]) -> int:
    """Its exit status."""
    await until(lambda: child.poll() is not None, "the end of the plugin")
    assert child.returncode is not None
    return child.returncode


async def start(kubelet: Kubelet) -> None:
    """Ask to start a container of a known pod. The kubelet gives it no time limit."""
    kubelet.give("uid-1", "alice", "slot-0002")
    plugin = await kubelet.plugin()
    with pytest.raises((ConnectionError, grpc.aio.AioRpcError), match=r"UNAVAILABLE|closing"):
        await kubelet.before_start("slot-0002")
    await until(lambda: plugin.stopped, "the end of the stream")


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS)
async def test_half_dead_plugin_ends_itself_and_frees_the_kubelet(hang: str) -> None:
    """A plugin that went on was seen to block a kubelet for ten minutes."""
    with home() as base:
        async with running(base / "kubelet") as kubelet:
            child = begin(base, hang)
            await start(kubelet)
            assert await ended(child) == supervision.FAILED


async def test_killed_plugin_is_followed_by_another_at_once() -> None:
    """Its socket and its lock are no obstacle to the next; nothing is asked of it meanwhile."""
    with home() as base:
        async with running(base / "kubelet") as kubelet:
            for count in (1, 2, 3):
                child = begin(base, "pass")
                await until(lambda count=count: kubelet.registrations >= count, "a registration")  # type: ignore[misc]
                plugin = await kubelet.plugin()
                child.kill()
                assert await ended(child) == -signal.SIGKILL
                await until(lambda plugin=plugin: plugin.stopped, "the end of the stream")  # type: ignore[misc]
            assert (base / "kubelet/device-plugins/jupyter-gpu-slot.sock").exists()


async def test_stopped_plugin_leaves_no_socket() -> None:
    """It ends in order, with exit status 0."""
    with home() as base:
        async with running(base / "kubelet") as kubelet:
            child = begin(base, "pass")
            await kubelet.plugin()
            child.terminate()
            assert await ended(child) == 0
            assert not (base / "kubelet/device-plugins/jupyter-gpu-slot.sock").exists()
