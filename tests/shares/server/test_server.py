"""The server as a process, with real sockets and real clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.shares.rules.protocol import FOREVER, NO_LIMIT, Ask, Done, Grant, Memory, Need
from jupyter_gpu_node.shares.server.alarm import Alarm
from jupyter_gpu_node.shares.server.peer import beside_us, in_its_pod, peer_of
from tests.shares.client import PATIENCE, Ended, now
from tests.shares.serve import Serving
from tests.shares.world import GPU, connect, grows, programs, serves, shown, until

# --- what it does -----------------------------------------------------------------------------------------------------


def test_two_shares_take_turns(server: Serving) -> None:
    """Over real sockets, and by real time."""
    with connect(server, "a") as a, connect(server, "b") as b:
        assert a.grant() == Grant(20_000, 1)
        b.send(Ask())
        assert a.revoked() == 1
        assert b.poll() is None
        a.send(Done(0, 0, 1))
        assert b.granted().number == 1
        assert server.usage(GPU, "b")["running"]
        b.send(Done(None, 0, 1))
        assert a.granted().number == 2


def test_alone_a_lease_is_extended(server: Serving) -> None:
    """It is extended again and again, under one number."""
    with connect(server, "a") as a:
        a.grant()
        assert {a.granted().number for _ in range(5)} == {1}


def test_processes_of_one_share(server: Serving) -> None:
    """A client that comes during the lease has it at once; both are asked for it, and the last one gives it back."""
    with connect(server, "a") as one, connect(server, "a") as two, connect(server, "b") as b:
        one.grant()
        two.grant()
        assert server.usage(GPU, "a")["clients"] == 2
        b.send(Ask())
        assert (one.revoked(), two.revoked()) == (1, 1)
        one.send(Done(None, 0, 1))
        assert b.poll(0.03) is None
        two.close()
        assert b.granted().number == 1


def test_a_guest_runs_while_others_have_no_work(server: Serving) -> None:
    """It is asked for the GPU as soon as one of them has some; in its file it has a thousandth, and its memory."""
    server.set({GPU: {"a": 500, "b": 500, "guest": (0, 64)}})
    with connect(server, "guest") as guest, connect(server, "a") as a:
        assert guest.grant() == Grant(5_000, 1)
        assert (guest.need(60), guest.need(65)) == (Memory(60, 64, 60), Memory(60, 64, 60))
        a.send(Ask())
        assert guest.revoked() == 1
        guest.send(Done(0, 0, 1))
        assert a.granted() == Grant(20_000, 1)
        assert guest.poll(0.03) is None
        a.send(Done(None, 0, 1))
        assert guest.granted().number == 2
    until(server.file(GPU, "guest").exists)
    seen = json.loads(server.file(GPU, "guest").read_text())
    assert (seen["allocated"], seen["memory_limit"], seen["cap"]) == (1, 64, 0)


def test_a_whole_gpu(server: Serving) -> None:
    """It is granted for ever, drained when it becomes a share, and whole again while the program runs."""
    server.set({GPU: {"a": 500}, "GPU-2": {"a": 1000}})
    with connect(server, "a", "GPU-2") as a:
        assert a.granted() == Grant(FOREVER, 1)
        server.set({GPU: {"a": 500}, "GPU-2": {"a": 500, "b": 500}})
        assert a.revoked() == 1
        a.send(Done(0, 0, 1))
        assert a.granted() == Grant(20_000, 2)
        server.set({GPU: {"a": 500}, "GPU-2": {"a": 1000}})
        while (grant := a.granted()).time != FOREVER:
            pass
        assert grant.number == 2


def test_memory(server: Serving) -> None:
    """It is granted within the limit, and a new limit reaches the client at once."""
    server.set({GPU: {"a": (500, 100)}})
    with connect(server, "a") as one, connect(server, "a") as two:
        assert one.need(60) == Memory(60, 100, 60)
        assert two.need(0) == Memory(0, 100, 60)
        assert two.need(41) == Memory(0, 100, 60)
        server.set({GPU: {"a": 500}})
        assert (one.next(), two.next()) == (Memory(60, NO_LIMIT, 60), Memory(0, NO_LIMIT, 60))
        assert two.need(41) == Memory(41, NO_LIMIT, 101)
        one.close()
        until(lambda: server.usage(GPU, "a")["memory"] == 41)


def test_shares_come_and_go(server: Serving, tmp_path: Path) -> None:
    """A share that is removed in its lease drains; then its clients, its socket and its files are gone."""
    with connect(server, "a") as a, connect(server, "a") as idle, connect(server, "b") as b:
        a.grant()
        b.send(Ask())
        until(lambda: server.file(GPU, "a").exists())
        server.set({GPU: {"b": 500, "c": 500}})
        assert idle.ended()
        assert a.revoked() == 1
        assert b.poll() is None
        assert not server.socket(GPU, "a").exists()
        a.send(Done(0, 0, 1))
        assert a.ended()
        assert b.granted().number == 1
        b.send(Done(None, 0, 1))
        until(lambda: not server.file(GPU, "a").exists())
        until(lambda: not (tmp_path / "state" / "shares" / GPU / "a.json").exists())
        serves(server, "c")
        server.set({GPU: {"a": 500}})
        serves(server, "a")
        with pytest.raises(RuntimeError, match="KeyError"):
            server.usage(GPU, "b")


def test_wrong_shares_change_nothing(server: Serving) -> None:
    """Shares of more than the GPU, and names that lead elsewhere, are refused."""
    for shares in ({"a": 600, "b": 500}, {"a": 0}, {"../a": 100}):
        with pytest.raises(RuntimeError, match="ValueError"):
            server.set({GPU: shares})
    serves(server, "a")
    serves(server, "b")


def test_a_directory_that_cannot_be_used(server: Serving, tmp_path: Path) -> None:
    """The other shares are served; when it can be used, so is that one."""
    (tmp_path / "bad").write_text("")
    shares = {GPU: {"a": 300, "bad": 300, "z": 300}}
    with pytest.raises(RuntimeError, match="Error"):
        server.set(shares)
    serves(server, "a")
    serves(server, "z")
    (tmp_path / "bad").unlink()
    server.set(shares)
    serves(server, "bad")


def test_unused_time_is_saved_and_shown(server: Serving) -> None:
    """The file that the pod reads tells the balance; the deposits are in the node's own copy alone."""
    serves(server, "a")
    until(lambda: shown(server)["balance"] > 50_000)
    body = shown(server)
    assert (body["allocated"], body["effective"], body["sharing"], "deposits" in body) == (500, 500, 1, False)
    assert server.usage(GPU, "a")["account"]["balance"] >= body["balance"]


def test_a_gpu_at_rest_writes_nothing(tmp_path: Path) -> None:
    """Once the bank of its share is full; beside it another GPU is at work, and its file is written each period."""
    with Serving(tmp_path, period=10_000, lease=5_000, expiry=1_000_000) as server:
        server.set({"GPU-2": {"idle": 500}, GPU: {"a": 500, "b": 500}})
        rests, works = server.file("GPU-2", "idle"), server.file(GPU, "a")
        until(lambda: rests.exists() and (found := json.loads(rests.read_text()))["balance"] == found["cap"])
        with programs(server, tmp_path, "a", "b"):
            until(works.exists)
            before, texts = rests.read_text(), [works.read_text()]
            while len(texts) < 15:  # 1.5 seconds: the other was served often
                until(lambda: works.read_text() != texts[-1])
                texts.append(works.read_text())
        assert rests.read_text() == before
        assert server.usage("GPU-2", "idle")["account"]["lost"] > json.loads(rests.read_text())["lost"]


def test_a_long_rest_costs_no_savings(tmp_path: Path) -> None:
    """A bank is full after a server is killed and a rest that is longer than its deposits live."""
    with Serving(tmp_path, period=10_000, lease=5_000, expiry=6_000_000) as server:
        server.set({GPU: {"a": 500}})
        until(lambda: server.usage(GPU, "a")["account"]["lost"] > 3_500_000)  # a half of more than seven seconds
        full = server.usage(GPU, "a")["account"]["balance"]
        server.kill()
        server.start()
        server.set({GPU: {"a": 500}})
        assert server.usage(GPU, "a")["account"]["balance"] >= full * 0.9 > 0


def test_unused_milli_are_lent(tmp_path: Path) -> None:
    """They are with co-adjustment; the file tells why."""
    with Serving(tmp_path, elastic=True, period=20_000) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with programs(server, tmp_path, "a"):
            until(lambda: server.usage(GPU, "a")["effective"] > 500)
            until(lambda: shown(server)["effective"] > 500)
            until(lambda: shown(server)["reason"])
            # each asked for alone: the one that is asked first may be lent less by then
            until(lambda: sum(server.usage(GPU, pod)["effective"] for pod in "ab") <= 1000)


def test_loans_survive_a_killed_server(tmp_path: Path) -> None:
    """The next one begins where that stood, and goes on from there; a share of another size begins with its own."""
    with Serving(tmp_path, elastic=True, period=20_000) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        own = tmp_path / "state" / "shares" / GPU / "a.json"
        with programs(server, tmp_path, "a"):
            until(lambda: own.exists() and json.loads(own.read_text())["effective"] > 700)
            server.kill()
        until(lambda: json.loads(own.read_text())["effective"] > 700)
        server.start()
        server.set({GPU: {"a": 500, "b": 500}})
        a, b = (server.usage(GPU, pod)["effective"] for pod in "ab")
        assert a > 550, "and not its own 500"
        assert a + b <= 1000
        assert server.usage(GPU, "a")["reason"]
        server.set({GPU: {"a": 500, "b": 400}})
        assert [server.usage(GPU, pod)["effective"] for pod in "ab"] == [500, 400]


@contextlib.contextmanager
def connecting(before: str, after: str) -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A process that connects, with code before and after; its connection is open until the end of the test."""
    where = f"\0test-{os.getpid()}-{now()}"
    script = f"""if True:
        import os, socket, sys
        {before}
        connection = socket.socket(socket.AF_UNIX)
        connection.connect({where!r})
        {after}
        sys.stdin.read()
    """
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(where)
        listening.listen()
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE) as process:
            connection, _ = listening.accept()
            with connection:
                yield process, connection


def test_an_alarm_rings_once_and_not_too_early() -> None:
    """It rings at the time that was set last, and never after its end."""

    async def rings() -> list[int]:
        heard: list[int] = []
        begin = now()
        alarm = Alarm(lambda: heard.append(now() - begin))
        for number, after in enumerate((3_000, -5), 1):
            alarm.set(60_000_000)
            alarm.set(after)
            async with asyncio.timeout(PATIENCE):
                while len(heard) < number:
                    await asyncio.sleep(0.001)
        alarm.set(1_000)
        alarm.close()
        await asyncio.sleep(0.01)
        return heard

    first, second = asyncio.run(rings())
    assert 3_000 <= first <= second


# --- identity ---------------------------------------------------------------------------------------------------------


def test_a_process_of_another_pod_is_refused(tmp_path: Path) -> None:
    """The connection ends, the reason is in the log, and the share keeps its rights."""
    with Serving(tmp_path, refuse=(os.getpid(),)) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with connect(server, "a") as foreign:
            with contextlib.suppress(Ended):
                foreign.send(Ask(), Need(5))
            assert foreign.ended()
        until(lambda: f"process {os.getpid()} is not of pod a" in server.log)
        assert server.members() == []
        with programs(server, tmp_path, "a") as ((_, log),):
            grows(log, 3)


def test_a_connection_is_of_the_process_that_made_it(server: Serving) -> None:
    """The kernel tells which process made it, whichever process uses it."""
    with connect(server, "a") as client:
        client.grant()
        (member,) = server.members()
        assert (member["pod"], member["gpu"], member["process"]["pid"]) == ("a", GPU, os.getpid())


def test_ended_process_has_no_identity() -> None:
    """A connection that outlives the process that made it proves nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours).pid == os.getpid()
        assert beside_us(peer_of(ours), "pod") == ""
        assert "in no pod" in in_its_pod(peer_of(ours), "pod")
    with connecting("", "os.fork() and os._exit(0)") as (process, connection):
        process.wait()
        with pytest.raises(ProcessLookupError, match=str(process.pid)):
            peer_of(connection)


@pytest.mark.root
def test_pod_is_identified_by_its_control_group() -> None:
    """A process of that pod has its share; one of another pod, and one of none, do not."""
    unified = cgroup.mounts().unified
    if unified is None:
        pytest.skip("not run: there is no cgroup v2 hierarchy")
    uid = f"test{os.getpid()}"
    group = Path(unified.mount) / f"test-kubepods-pod{uid}.slice"
    group.mkdir()
    try:
        enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        with connecting(enter, "") as (_, connection):
            found = peer_of(connection)
            assert in_its_pod(found, uid) == ""
            assert f"is in pod {uid}" in in_its_pod(found, "another")
            assert beside_us(found, uid) == "" or "control group" in beside_us(found, uid)
    finally:
        until(lambda: not cgroup.populated(group))
        group.rmdir()
