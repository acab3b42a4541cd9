"""The pod's socket: what the node plugin says, and how it can fail to."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.kubernetes import node_socket
from jupyter_gpu.backends.kubernetes.node_socket import NodeSocket, Unreachable
from jupyter_gpu.backends.kubernetes.rules.pod_state import PodUpdate
from jupyter_gpu.model import strict
from jupyter_gpu.model.details import GpuDetails, NamedProcessUse
from jupyter_gpu.model.gpu import Holder
from tests.builders import inventory

SECONDS = 60.0
NODE = {"node": "n1", "simulated": True, "gpus": [gpu.to_json() for gpu in inventory(2)]}
POD: dict[str, Any] = {
    "pod": {
        "metadata": {
            "namespace": "n",
            "name": "p",
            "uid": "u",
            "resourceVersion": "7",
            "annotations": {"jupyter-gpu.io/requested": "1"},
        }
    },
    "gone": False,
    "trouble": "",
}
SAMPLE = {
    "loads": {"GPU-0": {"utilisation": 12.5, "memory": 7}, "GPU-1": {"utilisation": None, "memory": None}},
    "holders": {"GPU-0": [{"pid": 3, "command": "python"}]},
}


@pytest.fixture
def path() -> Iterator[Path]:
    """Return the path of the socket: short, as such paths have to be."""
    with tempfile.TemporaryDirectory(prefix="jg-") as folder:
        yield Path(folder) / "node.sock"


class Plugin:
    """The other end: answers what a test sets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writers: list[asyncio.StreamWriter] = []
        self.answers: dict[str, Any] = {"node": NODE, "sample": SAMPLE, "pod": POD}
        self.asked = 0

    async def open(self) -> None:
        """Begin to serve."""
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    def tell(self, version: int) -> None:
        """A new state of the pod, to all."""
        metadata = {**POD["pod"]["metadata"], "resourceVersion": str(version)}
        self.answers["pod"] = {**POD, "pod": {"metadata": metadata}}
        self.say(json.dumps(self.answers["pod"]).encode() + b"\n")

    def say(self, line: bytes) -> None:
        """To all that are connected."""
        for writer in self._writers:
            if not writer.is_closing():
                writer.write(line)

    async def close(self) -> None:
        """All connections end."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with suppress(OSError):
            while line := await reader.readline():
                self.asked += 1
                answer = self.answers[json.loads(line)["get"]]
                if answer is None:
                    return writer.close()
                writer.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")
                await writer.drain()
        return writer.close()


class Listener:
    """A node socket, and what it reported."""

    def __init__(self, path: Path) -> None:
        self._news = asyncio.Event()
        self.states: list[PodUpdate] = []
        self.socket = NodeSocket(path, self._news.set, self._record)

    def _record(self, told: PodUpdate) -> None:
        self.states.append(told)
        self._news.set()

    @property
    def versions(self) -> list[str]:
        """Versions of the pod, as they were sent."""
        return [told.pod["metadata"]["resourceVersion"] for told in self.states if told.pod]

    async def until(self, condition: Callable[[NodeSocket], bool]) -> None:
        """Wait for it."""
        async with asyncio.timeout(SECONDS):
            while not condition(self.socket):
                await self._news.wait()
                self._news.clear()


@asynccontextmanager
async def listening(path: Path) -> AsyncIterator[Listener]:
    """It runs."""
    listener = Listener(path)
    task = asyncio.create_task(listener.socket.run())
    try:
        yield listener
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def test_node_is_read_again_after_a_change(path: Path) -> None:
    """It is asked once, and again after each notice; a plugin that comes back is found."""

    async def play() -> None:
        plugin = Plugin(path)
        await plugin.open()
        async with listening(path) as listener:
            await listener.until(lambda socket: socket.node is not None)
            assert listener.socket.node is not None
            assert (listener.socket.node.name, listener.socket.node.gpus) == ("n1", inventory(2))
            plugin.answers["node"] = {**NODE, "gpus": []}
            listener.socket.refresh()
            await listener.until(lambda socket: socket.node is not None and not socket.node.gpus)
            await plugin.close()
            await listener.until(lambda socket: bool(socket.trouble))
            assert listener.socket.node is not None
            plugin.answers["node"] = NODE
            await plugin.open()
            await listener.until(lambda socket: not socket.trouble)
            await listener.until(lambda socket: socket.node is not None and len(socket.node.gpus) == 2)
        await plugin.close()

    asyncio.run(play())


def test_states_of_the_pod_are_streamed(path: Path) -> None:
    """They come one after the other, also from a plugin that came back; the node is not asked again for them."""

    async def play() -> None:
        plugin = Plugin(path)
        await plugin.open()
        async with listening(path) as listener:
            await listener.until(lambda _: listener.versions == ["7"])
            for version in (8, 9):
                plugin.tell(version)
            await listener.until(lambda _: listener.versions == ["7", "8", "9"])
            assert plugin.asked == 2
            await plugin.close()
            await listener.until(lambda socket: bool(socket.trouble))
            plugin.tell(12)
            await plugin.open()
            await listener.until(lambda socket: listener.versions[-1] == "12" and not socket.trouble)
        await plugin.close()

    asyncio.run(play())


def test_unreadable_state_ends_the_connection(path: Path) -> None:
    """It is reported, and the next connection begins with the newest state."""

    async def play() -> None:
        plugin = Plugin(path)
        await plugin.open()
        async with listening(path) as listener:
            await listener.until(lambda socket: socket.node is not None and not socket.trouble)
            plugin.say(b'{"pod": 1}\n')
            await listener.until(lambda socket: "can't be read" in socket.trouble)
            await listener.until(lambda socket: not socket.trouble)
        await plugin.close()

    asyncio.run(play())


def test_plugin_older_than_the_server_is_reported(path: Path) -> None:
    """It does not stream the pod's state: that stays reported, as nothing new would be seen."""

    async def play() -> None:
        plugin = Plugin(path)
        plugin.answers["pod"] = {"error": "'get' must be one of: node, sample."}
        await plugin.open()
        async with listening(path) as listener:
            for asked in (2, 6):
                await listener.until(lambda socket: bool(socket.trouble))
                assert listener.socket.trouble == node_socket.SILENT
                async with asyncio.timeout(SECONDS):
                    while plugin.asked < asked:
                        assert listener.socket.trouble
                        await asyncio.sleep(0.01)
            plugin.answers["pod"] = POD
            await listener.until(lambda socket: not socket.trouble)
        await plugin.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("shares", "unenforced", "taken"),
    [
        ({"problem": "", "taken": {}}, "", {}),
        ({"problem": "it is off", "taken": {"GPU-1": "Late."}}, "it is off", {"GPU-1": "Late."}),
        (None, node_socket.OLDER, {}),
    ],
)
def test_node_says_whether_shares_are_enforced(shares: Any, unenforced: str, taken: dict[str, str]) -> None:
    """A node that says nothing does not enforce them."""
    node = node_socket.read_node({**NODE, "shares": shares})
    assert (node.unenforced, node.taken) == (unenforced, taken)


@pytest.mark.parametrize("shares", [[], {}, {"problem": 1, "taken": {}}, {"problem": "", "taken": {"GPU-1": 2}}])
def test_invalid_answer_about_shares_is_refused(shares: Any) -> None:
    """It is refused as any invalid answer."""
    with pytest.raises(strict.FieldError):
        node_socket.read_node({**NODE, "shares": shares})


def test_sample_has_loads_and_holders(path: Path) -> None:
    """Both are by uuid; a device without a load has None."""

    async def play() -> None:
        plugin = Plugin(path)
        await plugin.open()
        use = await NodeSocket(path, lambda: None).sample()
        assert (use.loads["GPU-0"].utilisation, use.loads["GPU-1"].memory) == (12.5, None)
        assert use.holders == {"GPU-0": (Holder(3, "python"),)}
        await plugin.close()

    asyncio.run(play())


def test_details_are_read_by_gpu(path: Path) -> None:
    """They are checked; a plugin older than the question counts as unreachable for it."""

    async def play() -> None:
        plugin = Plugin(path)
        plugin.answers["details"] = {
            "gpus": {"GPU-0": {"slowdown": 90, "processes": [{"pid": 3, "command": "python"}]}}
        }
        await plugin.open()
        socket = NodeSocket(path, lambda: None)
        assert await socket.details() == {"GPU-0": GpuDetails(90, processes=(NamedProcessUse(3, "python"),))}
        plugin.answers["details"] = {"gpus": {"GPU-0": {"slowdown": "hot"}}}
        with pytest.raises(Unreachable, match="slowdown"):
            await socket.details()
        plugin.answers["details"] = {"error": "'get' must be one of: node, sample."}
        with pytest.raises(Unreachable, match="one of"):
            await socket.details()
        await plugin.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "hung up"),
        ({"error": "this slot is nobody's"}, "this slot is nobody's"),
        (b"no json\n", "can't be read"),
        ([], "must be a JSON object"),
        ({"loads": {}}, "must be a JSON object"),
        ({"loads": {"GPU-0": {"utilisation": "much", "memory": 1}}, "holders": {}}, "utilisation"),
        ({"loads": {"": {}}, "holders": {}}, "loads"),
        ({"loads": {}, "holders": {"GPU-0": [{"pid": "x"}]}}, "pid"),
        (b"x" * (node_socket.MAX_ANSWER + 10), "limit"),
    ],
)
def test_bad_answer_counts_as_no_answer(path: Path, answer: Any, words: str) -> None:
    """Answers over the socket are checked like all input from outside."""

    async def play() -> None:
        plugin = Plugin(path)
        plugin.answers["sample"] = answer
        await plugin.open()
        with pytest.raises(Unreachable, match=words):
            await NodeSocket(path, lambda: None).sample()
        await plugin.close()

    asyncio.run(play())


def test_silent_plugin_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer has a deadline."""
    monkeypatch.setattr(node_socket, "DEADLINE", 0.2)

    async def play() -> None:
        plugin = Plugin(path)
        plugin.answers["node"] = b" "
        await plugin.open()
        async with listening(path) as listener:
            await listener.until(lambda socket: socket.trouble == "it took too long")
        await plugin.close()

    asyncio.run(play())


def test_dead_socket_is_reported(path: Path) -> None:
    """There may be no file, or one without a listener."""

    async def play() -> None:
        async with listening(path) as listener:
            await listener.until(lambda socket: socket.trouble == "No such file or directory")
            assert listener.socket.known.is_set()

    asyncio.run(play())
