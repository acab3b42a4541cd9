"""Detection of the Jupyter server of a container: the rules, and real processes that pretend to be it."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.agent.pod_events import PodEvents
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.kubelet.pod_socket import MAX_CONNECTIONS, PodSockets
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.processes.signals import identify
from jupyter_gpu_node.shares import origin
from jupyter_gpu_node.shares.rules import jupyter_server
from jupyter_gpu_node.shares.rules.jupyter_server import Ancestor
from tests.node.conftest import Child
from tests.shares.enforcing import until
from tests.shares.world import until as wait_until

processes = st.builds(ProcessId, st.integers(1, 9), st.integers(0, 9))
ancestors = st.builds(Ancestor, st.integers(0, 9), st.booleans(), st.booleans())

# --- rules ------------------------------------------------------------------------------------------------------------


@given(st.lists(processes))
def test_oldest_connection_is_the_server(connected: list[ProcessId]) -> None:
    """The same for any order of connections; none without connections."""
    found = jupyter_server.server(connected)
    assert (found is None) == (not connected)
    assert found is None or all(found.start <= one.start for one in connected)
    again = jupyter_server.server(reversed(connected))
    assert (again and again.start) == (found and found.start)


@given(st.lists(processes, min_size=1), processes)
def test_older_process_never_loses_a_connection_to_a_younger_one(
    connected: list[ProcessId], newcomer: ProcessId
) -> None:
    """So what the server started cannot keep it away, and it does not keep itself away."""
    loser = jupyter_server.makes_room(connected, newcomer)
    youngest = max(one.start for one in connected)
    assert (loser is not None) == (newcomer.start < youngest)
    assert loser is None or (loser in connected and loser.start == youngest)
    assert jupyter_server.makes_room([], newcomer) is None


@given(st.lists(ancestors, max_size=5), st.integers(1, 8))
def test_ancestry_counts_only_if_it_leaves_the_container(line: list[Ancestor], most: int) -> None:
    """One that was cut off may end anywhere."""
    line = line[:most]
    found = jupyter_server.top(line, most)
    inside = next((number for number, one in enumerate(line) if not one.inside), len(line))
    if inside == 0 or (inside == len(line) and len(line) == most):
        assert found is None
    else:
        assert found is line[inside - 1]


@given(ancestors, st.none() | st.lists(st.integers(0, 9)))
def test_the_first_process_is_number_one_or_the_oldest(one: Ancestor, others: list[int] | None) -> None:
    """Unknown facts count against it."""
    oldest = others is not None and not any(other < one.started for other in others)
    assert jupyter_server.is_first(one, others) == (one.first or oldest)


# --- real processes ---------------------------------------------------------------------------------------------------

ACTOR = """
import os, socket, subprocess, sys, time
role, folder = sys.argv[1:]
def start(other):
    return subprocess.Popen([sys.executable, "-c", os.environ["ACTOR"], other, folder])
children = {"first": ["server"], "server": ["kernel"], "kernel": ["middle"], "middle": ["orphan"]}
for other in children.get(role, []):
    start(other)
if role == "middle":
    os._exit(0)
open(f"{folder}/{role}.there", "w").close()
held = []
while True:
    try:
        count = int(open(f"{folder}/{role}.connect").read() or 0)
    except OSError:
        count = 0
    while len(held) < count:
        one = socket.socket(socket.AF_UNIX)
        one.connect(f"{folder}/node.sock")
        held.append(one)
        one.settimeout(30)
        try:
            one.sendall(b'{"get": "node"}\\n')
            one.recv(100)
        except OSError:
            pass
        open(f"{folder}/{role}.{len(held)}", "w").close()
    time.sleep(0.01)
"""


@dataclass
class Container:
    """A container's processes, in a pid namespace of their own or not, and the sockets of their slot."""

    folder: Path
    uid: str
    group: Path
    sockets: PodSockets

    def process(self, role: str) -> ProcessId:
        """It must be there."""
        pids = [
            pid
            for pid in cgroup.processes(self.group)
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3:4] == [role.encode()]
        ]
        found = identify(pids[0])
        assert found
        return found

    async def connect(self, role: str, count: int = 1) -> None:
        """So many connections in all; when this returns each was answered, or closed."""
        draft = self.folder / f"{role}.draft"
        draft.write_text(str(count))
        draft.rename(self.folder / f"{role}.connect")
        await until((self.folder / f"{role}.{count}").exists)

    async def is_server(self, role: str) -> None:
        """Until it is the only one."""
        await until(lambda: self.sockets.servers == {self.process(role)})


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder: paths of sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def group(unified: Path) -> Iterator[Path]:
    """Control group of a pod's container, as the kubelet names it."""
    made = unified / f"jga-{secrets.token_hex(4)}" / "kubepods" / f"pod{secrets.token_hex(6)}" / "container"
    made.mkdir(parents=True)
    yield made
    (made / "cgroup.kill").write_text("1")
    wait_until(lambda: not cgroup.populated(made), "the group to be empty")
    for directory in (made, *list(made.parents)[:3]):
        directory.rmdir()


def play(group: Path, folder: Path, spawn: Callable[..., Child], *words: str) -> None:
    """Have ``words`` run in the group."""
    child = spawn(ACTOR=ACTOR)
    cgroup.enter(group, child.pid)
    child.run(f"import subprocess; subprocess.Popen({[*words]!r}, stdin=subprocess.DEVNULL)")
    cgroup.enter(group.parents[2], child.pid)


@asynccontextmanager
async def container(
    group: Path, folder: Path, spawn: Callable[..., Child], *, own_pids: bool
) -> AsyncIterator[Container]:
    """With first process, server, kernel, and what a kernel that has ended left behind; none is connected yet."""
    uid = group.parent.name.removeprefix("pod")

    async def answer(_uid: str, _what: str) -> dict[str, object]:
        return {"gpus": []}

    def of_first(process: ProcessId, pod: str) -> bool:
        return origin.of_first(process, pod, group.parent)

    sockets = PodSockets(lambda _: folder, answer, PodEvents().follow, of_first, lambda *_: "")
    await sockets.serve("slot-1", uid)
    before = ["unshare", "--pid", "--fork", "--kill-child"] if own_pids else []
    play(group, folder, spawn, *before, sys.executable, "-c", ACTOR, "first", str(folder))
    for role in ("first", "server", "kernel", "orphan"):
        await until((folder / f"{role}.there").exists)
    try:
        yield Container(folder, uid, group, sockets)
    finally:
        await sockets.close()


@pytest.mark.root
@pytest.mark.parametrize("own_pids", [True, False])
def test_a_process_that_connects_before_the_server_is_not_the_server(
    group: Path, short: Path, spawn: Callable[..., Child], own_pids: bool
) -> None:
    """Nor does it keep the server from connecting, however many connections it has."""

    async def check() -> None:
        async with container(group, short, spawn, own_pids=own_pids) as one:
            await one.connect("orphan", MAX_CONNECTIONS)
            await one.connect("kernel", MAX_CONNECTIONS)  # it started earlier
            await one.is_server("kernel")
            await one.connect("server")
            await one.is_server("server")
            await one.connect("orphan", MAX_CONNECTIONS + 1)  # refused
            await one.is_server("server")

    asyncio.run(check())


@pytest.mark.root
def test_process_entered_later_is_never_the_server(group: Path, short: Path, spawn: Callable[..., Child]) -> None:
    """It does not come from the first process, though it is in the same namespace and control group."""

    async def check() -> None:
        async with container(group, short, spawn, own_pids=True) as one:
            first = one.process("first")
            enter = ("nsenter", "--pid", "--target", str(first.pid))
            play(group, short, spawn, *enter, sys.executable, "-c", ACTOR, "extra", str(short))
            await until((short / "extra.there").exists)
            await one.connect("extra")
            assert one.sockets.servers == frozenset()
            await one.connect("server")
            await one.is_server("server")
            assert not origin.of_first(one.process("server"), "another-pod", group.parent)
            assert not origin.of_first(ProcessId(first.pid, first.start + 1), one.uid, group.parent)

    asyncio.run(check())


@pytest.mark.root
def test_a_process_of_no_pod_is_no_server(group: Path) -> None:
    """Nor one that has ended."""
    outside = subprocess.Popen(["sleep", "60"])
    try:
        process = identify(outside.pid)
        assert process
        assert not origin.of_first(process, "uid", group.parent)
    finally:
        outside.kill()
        outside.wait()
    assert not origin.of_first(process, "uid", group.parent)
