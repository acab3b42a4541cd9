"""The socket of a pod's Jupyter server: each new state of the pod, and never an older one."""

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.service import Peer
from jupyter_gpu_node.agent.pod_events import PodEvents
from jupyter_gpu_node.kubelet import pod_socket
from jupyter_gpu_node.kubelet.pod_socket import MAX_CONNECTIONS, NAME, PodSockets, Put
from tests.model.test_service import KEY

SECONDS = 60.0
SLOT = "slot-0000"


def pod(version: int, uid: str = "u", **more: Any) -> dict[str, Any]:
    """Return a pod as the API server sends it."""
    annotations = {"jupyter-gpu.io/attached": str(version), "example.com/secret": "x", **more.pop("annotations", {})}
    metadata = {"namespace": "n", "name": "p", "uid": uid, "resourceVersion": str(version), "annotations": annotations}
    return {"metadata": {**metadata, **more}, "spec": {"containers": []}, "status": {}}


@asynccontextmanager
async def serving(folder: Path, pod_events: PodEvents, put: Put = lambda *_: "") -> AsyncIterator[Path]:
    """One slot's socket."""

    async def answer(uid: str, what: str) -> Mapping[str, Any]:
        return {"asked": what, "uid": uid}

    sockets = PodSockets(lambda slot: folder / slot, answer, pod_events.follow, lambda *_: True, put)
    await sockets.serve(SLOT, "u")
    try:
        yield folder / SLOT / NAME
    finally:
        await sockets.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name, as paths of sockets need."""
    with tempfile.TemporaryDirectory(prefix="jg-") as made:
        yield Path(made)


class Follower:
    """A connection that asked for the pod."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, path: Path) -> "Follower":
        """Connects and asks."""
        follower = cls(*await asyncio.open_unix_connection(path, limit=2**20))
        follower.writer.write(b'{"get": "pod"}\n')
        return follower

    async def line(self) -> Any:
        """The next state; None: it was hung up."""
        text = await asyncio.wait_for(self.reader.readline(), SECONDS)
        return json.loads(text) if text else None

    async def version(self) -> int:
        """Return the version of the pod in the next state."""
        return int((await self.line())["pod"]["metadata"]["resourceVersion"])


def test_each_new_state_reaches_all_connections(folder: Path) -> None:
    """At once what is known, then what is new: version, our annotations, and nothing else of the pod."""

    async def play() -> None:
        pod_events = PodEvents()
        async with serving(folder, pod_events) as path:
            one = await Follower.at(path)
            assert await one.line() == {"pod": None, "gone": False, "trouble": ""}
            workers = {"jupyter-gpu.io/service": "{}", "jupyter-gpu.io/worker-status": "{}"}
            pod_events.update(pod(5, annotations=workers))
            metadata = {"namespace": "n", "name": "p", "uid": "u", "resourceVersion": "5"}
            known = {"metadata": {**metadata, "annotations": {"jupyter-gpu.io/attached": "5", **workers}}}
            assert await one.line() == {"pod": known, "gone": False, "trouble": ""}
            other = await Follower.at(path)
            assert await other.version() == 5
            pod_events.update(pod(4))  # a watch that is behind the answer to a write
            pod_events.update(pod(9, "another"))
            pod_events.update(pod(6, deletionTimestamp="2026-01-01T00:00:00Z"))
            for follower in (one, other):
                told = await follower.line()
                assert told["pod"]["metadata"]["resourceVersion"] == "6"
                assert told["pod"]["metadata"]["deletionTimestamp"]
            pod_events.trouble("the API server is away")
            assert (await one.line())["trouble"] == "the API server is away"
            pod_events.trouble("")
            pod_events.removed("u")
            states = [await one.line()]
            if not states[-1]["gone"]:  # or both at once: the newest counts
                states.append(await one.line())
            assert (states[-1]["gone"], states[-1]["trouble"]) == (True, "")
            for follower in (one, other):
                follower.writer.close()

    asyncio.run(play())


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2)), max_size=30))
def test_no_older_state_follows_a_newer_one(steps: list[tuple[int, int]]) -> None:
    """In whatever order watch and writes bring them; in the end every connection has the newest."""

    async def play() -> None:
        pod_events = PodEvents()
        seen: list[int] = []

        async def follow() -> None:
            async for state in pod_events.follow("u"):
                if state["pod"]:
                    seen.append(int(state["pod"]["metadata"]["resourceVersion"]))  # noqa: PERF401 - it has no end

        task = asyncio.create_task(follow())
        for version, pauses in steps:
            pod_events.update(pod(version))
            for _ in range(pauses):
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert seen == sorted(set(seen))
        assert seen[-1:] == ([max(version for version, _ in steps)] if steps else [])

    asyncio.run(play())


def test_nothing_is_kept_of_removed_pods() -> None:
    """Neither by the last state of a pod nor by the end of its last connection."""

    async def play() -> None:
        pod_events = PodEvents()
        pod_events.update(pod(1))
        pod_events.forget("u")
        following = pod_events.follow("u")
        assert (await anext(following))["pod"] is None
        pod_events.update(pod(2))
        pod_events.forget("u")
        await following.aclose()  # type: ignore[attr-defined]
        pod_events.forget("nobody")
        assert not pod_events.known

    asyncio.run(play())


def test_keys_of_the_server_are_taken_over(folder: Path) -> None:
    """And the reason if they are not; the connection goes on, also after what cannot be read."""
    said: list[tuple[str, Peer]] = []

    def put(uid: str, peer: Peer) -> str:
        said.append((uid, peer))
        return "" if len(said) == 1 else "too often"

    async def play() -> None:
        async with serving(folder, PodEvents(), put) as path:
            reader, writer = await asyncio.open_unix_connection(path)

            async def ask(body: Mapping[str, Any]) -> Any:
                writer.write(json.dumps(body).encode() + b"\n")
                return json.loads(await asyncio.wait_for(reader.readline(), SECONDS))

            worker = {"put": "peer", "key": KEY, "port": 47100}
            assert await ask(worker) == {"put": "peer"}
            assert await ask({"put": "peer", "keys": {"w1": KEY}}) == {"error": "too often"}
            assert "port" in (await ask({**worker, "port": 0}))["error"]
            assert said == [("u", Peer(KEY, 47100)), ("u", Peer(keys=(("w1", KEY),)))]
            assert await ask({"get": "node"}) == {"asked": "node", "uid": "u"}
            writer.close()

    asyncio.run(play())


def test_flood_of_garbage_costs_no_memory(folder: Path) -> None:
    """A client that sends and does not read is held up by the socket, and cut off; others are served meanwhile."""

    async def play() -> None:
        async with serving(folder, PodEvents()) as path:
            with closing(socket.socket(socket.AF_UNIX)) as flood:
                flood.connect(str(path))
                flood.settimeout(0.2)
                sent = 0
                with suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
                    while sent < 2**26:
                        sent += await asyncio.to_thread(flood.send, b'{"put": "peer"}\n' * 4096)
                assert sent < 2**24
                follower = await Follower.at(path)
                assert (await follower.line())["pod"] is None
                follower.writer.close()

    asyncio.run(play())


GARBAGE = """
import random, socket, sys
chance, kept = random.Random(1), []
for number in range(1000):
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(0.002)
    try:
        peer.connect(sys.argv[1])
        kind = chance.randrange(4) if number >= 20 else 0
        if kind == 0:
            peer.send(b'{"get": "po')
        elif kind == 1:
            peer.send(chance.randbytes(100_000))
        elif kind == 2:
            peer.sendall(b'{"get": "nothing"}\\n' * 20_000)
    except OSError:
        pass
    kept = [*kept, peer][-100:]
print("done", flush=True)
sys.stdin.read()
"""
"""A program of the pod that sends half words, no words, many words and none, and leaves its connections open."""


def test_program_of_the_pod_that_sends_garbage(folder: Path) -> None:
    """An older program's connection goes on, and it is let in anew; afterwards nothing is left of the other's."""

    async def play() -> None:
        pod_events = PodEvents()
        async with serving(folder, pod_events) as path:
            before, open_before = resident(), descriptors()
            follower = await Follower.at(path)
            await follower.line()
            garbage = await asyncio.create_subprocess_exec(
                sys.executable, "-c", GARBAGE, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert garbage.stdout is not None
            done = asyncio.ensure_future(garbage.stdout.readline())
            version = 0
            while not done.done() or version < 10:
                pod_events.update(pod(version := version + 1))
                assert await follower.version() == version
                assert (await asyncio.to_thread(asked, path))["asked"] == "node"
            garbage.kill()
            await garbage.wait()
            follower.writer.close()
            for _ in range(500):
                await asyncio.sleep(0.01)
                if descriptors() <= open_before + 2:  # those of the pipes of what ended
                    break
            assert descriptors() <= open_before + 2
            assert resident() - before < 20 * 2**20
            assert version >= 10

    asyncio.run(play())


def asked(path: Path) -> Any:
    """Return the answer to a program that waits for its turn: asyncio's clients fail while others stand in line."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.settimeout(SECONDS)
        peer.sendall(b'{"get": "node"}\n')
        return json.loads(peer.makefile().readline())


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len([*Path("/proc/self/fd").iterdir()])


def resident() -> int:
    """Return the bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_connection_that_does_not_read_is_closed_and_delays_no_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread states are not kept: after a few the connection ends. Others are served all the while."""
    monkeypatch.setattr(pod_socket, "DEADLINE", 0.3)

    async def play() -> None:
        pod_events = PodEvents()
        async with serving(folder, pod_events) as path:
            with closing(socket.socket(socket.AF_UNIX)) as lazy:
                lazy.connect(str(path))
                lazy.sendall(b'{"get": "pod"}\n')
                diligent = await Follower.at(path)
                await diligent.line()
                large = {"jupyter-gpu.io/requested": "x" * 100_000}
                for version in range(1, 21):
                    pod_events.update(pod(version, annotations=large))
                    assert await diligent.version() == version
                await asyncio.sleep(1)
                lazy.settimeout(10)
                read = 0
                while found := await asyncio.to_thread(_received, lazy):
                    read += found
                assert read < 1_000_000
                pod_events.update(pod(99))
                assert await diligent.version() == 99
                diligent.writer.close()

    asyncio.run(play())


def _received(lazy: socket.socket) -> int:
    try:
        return len(lazy.recv(2**20))
    except ConnectionResetError:
        return 0


def test_connection_ends_with_its_client(folder: Path) -> None:
    """It takes no place of the few that a slot has; a client that sends more on it is cut off."""

    async def play() -> None:
        pod_events = PodEvents()
        async with serving(folder, pod_events) as path:
            for _ in range(3 * MAX_CONNECTIONS):
                follower = await Follower.at(path)
                assert (await follower.line())["pod"] is None
                follower.writer.close()
                await follower.writer.wait_closed()
            follower = await Follower.at(path)
            await follower.line()
            follower.writer.write(b'{"get": "node"}\n')
            assert await follower.line() is None
            follower.writer.close()
            reader, writer = await asyncio.open_unix_connection(path)
            for question, answer in ((b'{"get": "all"}\n', "error"), (b'{"get": "node"}\n', "asked")):
                writer.write(question)
                assert answer in json.loads(await asyncio.wait_for(reader.readline(), SECONDS))
            writer.close()

    asyncio.run(play())


def test_state_is_delivered_quickly(folder: Path) -> None:
    """From the agent's word to the other end of the socket: the best of some, as the machine has more to do."""

    async def play() -> None:
        pod_events = PodEvents()
        async with serving(folder, pod_events) as path:
            follower = await Follower.at(path)
            await follower.line()
            took = []
            for version in range(1, 101):
                begun = time.perf_counter()
                pod_events.update(pod(version))
                assert await follower.version() == version
                took.append(time.perf_counter() - begun)
            assert sorted(took)[10] < 0.001
            follower.writer.close()

    asyncio.run(play())
