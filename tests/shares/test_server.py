"""The server as a process, with real sockets and real clients, and what is done to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_node import cgroup
from jupyter_gpu_node.shares.alarm import Alarm
from jupyter_gpu_node.shares.identity import beside_us, in_its_pod, peer
from jupyter_gpu_node.shares.protocol import (
    FOREVER,
    MOST,
    NO_LIMIT,
    SIZE,
    Ask,
    Done,
    FromClient,
    Grant,
    Memory,
    Need,
    Revoke,
    encode,
)
from tests.shares.client import PATIENCE, Client, Ended, now, overlaps, uses
from tests.shares.serve import ROOT, Serving

GPU = "GPU-1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Serving]:
    """Two shares of one GPU."""
    with Serving(tmp_path) as found:
        found.set({GPU: {"a": 500, "b": 500}})
        yield found


def until(condition: Callable[[], object]) -> None:
    """Wait for it, very long."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def shown(server: Serving) -> dict[str, Any]:
    """What the pod of the first share sees."""
    until(server.file(GPU, "a").exists)
    found: dict[str, Any] = json.loads(server.file(GPU, "a").read_text())
    return found


def connect(server: Serving, pod: str, gpu: str = GPU) -> Client:
    return Client(server.socket(gpu, pod))


def serves(server: Serving, pod: str) -> None:
    """A new client of that share has a turn."""
    with connect(server, pod) as client:
        client.send(Done(None, 0, client.grant().number))


@contextlib.contextmanager
def programs(server: Serving, folder: Path, *pods: str, work: int = 3000, pause: int = 200) -> Iterator[list[Any]]:
    """One that uses the share of each of `pods` until the end; the processes, with their logs."""
    started = []
    for number, pod in enumerate(pods):
        log = folder / f"{pod}.{number}.log"
        log.touch()
        command = [sys.executable, "-m", "tests.shares.client", str(server.socket(GPU, pod)), str(log)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}"}
        process = subprocess.Popen([*command, "600", str(work), str(pause)], cwd=ROOT, env=environment)
        started.append((process, log))
    try:
        yield started
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


def written(folder: Path, kills: dict[Path, int] | None = None) -> dict[str, list[tuple[int, int]]]:
    """When each share had the GPU, by what its programs wrote."""
    found: dict[str, list[tuple[int, int]]] = {}
    for log in sorted(folder.glob("*.*.log")):
        found.setdefault(log.name.split(".")[0], []).extend(uses(log, (kills or {}).get(log)))
    return found


def stands(*logs: Path) -> bool:
    """Whether nothing is written for ten leases."""
    before = [log.read_text() for log in logs]
    time.sleep(0.2)
    return [log.read_text() for log in logs] == before


def grows(log: Path, lines: int = 20) -> None:
    """Wait until that program had so many turns more."""
    before = log.read_text().count("\n")
    until(lambda: log.read_text().count("\n") >= before + lines)


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
    """Again and again, under one number."""
    with connect(server, "a") as a:
        a.grant()
        assert {a.granted().number for _ in range(5)} == {1}


def test_processes_of_one_share(server: Serving) -> None:
    """Who comes during the lease has it at once; both are asked back, and the last one gives it."""
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


def test_a_whole_gpu(server: Serving) -> None:
    """For ever from the start; drained when it becomes a share, and back again while the program runs."""
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
    """Within the limit, and a new limit is told at once."""
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
    """A share removed in its lease is drained; then its clients, its socket and its files are gone."""
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
        assert not (tmp_path / "state" / "shares" / GPU / "a.json").exists()
        serves(server, "c")
        server.set({GPU: {"a": 500}})
        serves(server, "a")
        with pytest.raises(RuntimeError, match="KeyError"):
            server.usage(GPU, "b")


def test_wrong_shares_change_nothing(server: Serving) -> None:
    """More than the GPU, and names that lead elsewhere."""
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
    """In the file that the pod reads; the deposits are in the node's own copy alone."""
    serves(server, "a")
    until(lambda: shown(server)["bank"] > 50_000)
    body = shown(server)
    assert (body["allocated"], body["effective"], body["sharing"], "deposits" in body) == (500, 500, 2, False)
    assert server.usage(GPU, "a")["account"]["balance"] >= body["bank"]


def test_what_one_does_not_use_another_is_lent(tmp_path: Path) -> None:
    """With co-adjustment; the file tells why."""
    with Serving(tmp_path, elastic=True, period=20_000) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with programs(server, tmp_path, "a"):
            until(lambda: server.usage(GPU, "a")["effective"] > 500)
            until(lambda: shown(server)["effective"] > 500)
            until(lambda: shown(server)["reason"])
            found = [server.usage(GPU, pod)["effective"] for pod in "ab"]
            assert sum(found) <= 1000


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
    """Set again, the last time counts; after its end, none."""

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


# --- who it is --------------------------------------------------------------------------------------------------------


def test_a_process_of_another_pod_is_refused(tmp_path: Path) -> None:
    """Whatever it says: the connection ends, the reason is in the log, and the share keeps its rights."""
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
    """Not of the one that uses it: the kernel tells who that was."""
    with connect(server, "a") as client:
        client.grant()
        (member,) = server.members()
        assert (member["pod"], member["gpu"], member["process"]["pid"]) == ("a", GPU, os.getpid())


def test_who_has_ended_is_nobody() -> None:
    """A connection that outlives the process that made it proves nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer(ours).pid == os.getpid()
        assert beside_us(peer(ours), "pod") == ""
        assert "in no pod" in in_its_pod(peer(ours), "pod")
    with connecting("", "os.fork() and os._exit(0)") as (process, connection):
        process.wait()
        with pytest.raises(ProcessLookupError, match=str(process.pid)):
            peer(connection)


@pytest.mark.root
def test_a_pod_is_told_by_its_control_group() -> None:
    """A process of that pod has its share, one of another pod and one of none do not."""
    unified = cgroup.mounts().unified
    if unified is None:
        pytest.skip("not run: there is no cgroup v2 hierarchy")
    uid = f"test{os.getpid()}"
    group = Path(unified.mount) / f"test-kubepods-pod{uid}.slice"
    group.mkdir()
    try:
        enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        with connecting(enter, "") as (_, connection):
            found = peer(connection)
            assert in_its_pod(found, uid) == ""
            assert f"is in pod {uid}" in in_its_pod(found, "another")
            assert beside_us(found, uid) == "" or "control group" in beside_us(found, uid)
    finally:
        until(lambda: not cgroup.populated(group))
        group.rmdir()


# --- what is done to it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", "version 71"),
        (b"\0" * SIZE, "version 0"),
        (encode(Ask()) + encode(Revoke(1)), "kind 17"),
        (encode(Ask())[:-1] + b"\1", "not 0"),
        (encode(Done(None, 0, 7)), "gives lease 7 back"),
        (encode(Ask())[:-5], "27 bytes of a message"),
    ],
)
def test_garbage_ends_its_connection(server: Serving, data: bytes, reason: str) -> None:
    """With the reason in the log; another process of the same share does not notice."""
    with connect(server, "a") as good, connect(server, "a") as bad:
        good.grant()
        bad.raw(data)
        bad.socket.shutdown(socket.SHUT_WR)
        assert bad.ended()
        until(lambda: reason in server.log)
        assert good.granted().number == 1, "its lease goes on"
        serves(server, "a")


def test_a_message_in_pieces(server: Serving) -> None:
    """However slowly it comes."""
    with connect(server, "a") as a:
        for byte in encode(Ask(7)):
            a.raw(bytes([byte]))
        assert a.granted() == Grant(7, 1)


def test_a_million_messages(server: Serving, tmp_path: Path) -> None:
    """Drawn by chance, from a client that gives back: the other share has its turns meanwhile, none is lost."""
    chance = random.Random(5)
    draws: list[Callable[[], FromClient]] = [
        lambda: Ask(chance.choice((0, 1, 5000, MOST))),
        lambda: Done(chance.choice((None, 0, 70, MOST - 1)), chance.randrange(MOST)),
        lambda: Done(chance.choice((None, 0)), 0, chance.randrange(1, 3)),
        lambda: Need(chance.choice((0, chance.randrange(2**40), MOST))),
    ]
    blocks = [[chance.choice(draws)() for _ in range(500)] for _ in range(40)]
    ready = [(b"".join(map(encode, block)), sum(isinstance(one, Need) for one in block)) for block in blocks]
    with programs(server, tmp_path, "b") as ((_, log),):
        grows(log, 3)
        with connect(server, "a") as a:
            for _ in range(2):
                a.send(Done(0, 0, a.grant().number))
            for _ in range(2000):
                data, answers = chance.choice(ready)
                a.raw(data)
                while answers:
                    message = a.next()
                    answers -= isinstance(message, Memory)
                    if isinstance(message, Revoke):
                        a.send(Done(0, 0, message.number))
            turns = log.read_text().count("\n")
            a.send(Done(None, 0, MOST))
            assert a.ended()
        grows(log, 3)
    assert turns > 10
    until(lambda: f"gives lease {MOST} back" in server.log)
    serves(server, "a")
    serves(server, "b")


def test_ten_thousand_connections(server: Serving) -> None:
    """One share has so many and no more; the others are served, and it is again when they are gone."""
    count = 10_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = min(256, hard // 2 // 2)
    held: list[socket.socket] = []
    try:
        with connect(server, "b") as b:
            for number in range(count):
                one = socket.socket(socket.AF_UNIX)
                one.connect(str(server.socket(GPU, "a")))
                one.settimeout(PATIENCE)
                if len(held) < most:
                    held.append(one)
                else:
                    assert one.recv(1) == b"", "it is refused by its end"
                    one.close()
                if number % 1000 == 0:
                    b.send(Done(None, 0, b.grant().number))
        assert sum(one["pod"] == "a" for one in server.members()) == most
        assert f"it has {most} already" in server.log
        assert server.log.count("\n") < 200, "a flood does not fill the log"
        serves(server, "b")
        for one in held:
            one.close()
        until(lambda: not any(member["pod"] == "a" for member in server.members()))
        serves(server, "a")
    finally:
        for one in held:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_beyond_what_the_process_may_open(tmp_path: Path) -> None:
    """Each share has its part of what there is, so that one cannot take it from the others."""
    with Serving(tmp_path, files=48) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        flood = [connect(server, "a") for _ in range(100)]
        serves(server, "b")
        assert flood[-1].ended()
        assert sum(one["pod"] == "a" for one in server.members()) == 12
        for client in flood:
            client.close()
        until(lambda: not server.members())
        serves(server, "a")


def test_a_client_that_never_reads(server: Serving) -> None:
    """Its connection is closed when it can hold no more; the others have their turns."""
    with connect(server, "a") as deaf, connect(server, "b") as b:
        deaf.socket.settimeout(1)
        with contextlib.suppress(Ended, TimeoutError):
            while True:
                deaf.raw(encode(Need(1)) * 100)
        until(lambda: "does not read what it is sent" in server.log)
        assert b.grant().number == 1
        assert deaf.ended()


def test_a_client_that_never_gives_back(tmp_path: Path) -> None:
    """It is told of once, with its processes; the other waits, for the GPU is not free, and gets it when that ends."""
    with Serving(tmp_path, grace=20_000) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with connect(server, "a") as hog, connect(server, "b") as b:
            hog.grant()
            b.send(Ask())
            until(server.overdue)
            (late,) = server.overdue()
            assert (late["gpu"], late["pod"], [one["pid"] for one in late["processes"]]) == (GPU, "a", [os.getpid()])
            assert b.poll(0.1) is None
            assert len(server.overdue()) == 1
            hog.close()
            assert b.granted().number == 1


def test_clients_that_die_when_they_are_granted(server: Serving) -> None:
    """At the very moment: the next one has the GPU, whoever died."""
    with connect(server, "a") as a, connect(server, "b") as last:
        number = a.grant().number
        for _ in range(200):
            dying = connect(server, "b")
            dying.send(Ask())
            a.send(Done(0, 0, number))
            dying.close()
            number = a.another(number)
        last.send(Ask())
        a.send(Done(None, 0, number))
        assert last.granted().number == 1
        last.send(Done(None, 0, 1))
    assert server.call(holder=GPU) is None


def test_clients_killed_in_a_lease_and_while_they_wait(server: Serving, tmp_path: Path) -> None:
    """Whoever is left goes on, and two shares never have the GPU at one time."""
    kills: dict[Path, int] = {}
    chance = random.Random(7)
    with programs(server, tmp_path, *"aabbab") as running:
        grows(running[-1][1])
        for process, log in running[:-2]:
            time.sleep(chance.random() / 50)
            kills[log] = now()
            process.kill()
            process.wait()
            for _, other in running[-2:]:
                grows(other, 5)
    shares = written(tmp_path, kills)
    assert overlaps(shares) == []
    assert all(len(times) > 10 for times in shares.values())


def test_programs_whose_shares_change_all_the_time(server: Serving, tmp_path: Path) -> None:
    """Resized, taken away, given again, whole for a while: never two at one time, and all come to their turn."""
    chance = random.Random(3)
    with programs(server, tmp_path, *"abca", work=8000) as running:
        for _ in range(60):
            pods = chance.sample("abc", chance.randrange(4))
            milli = {pod: chance.choice((100, 200, 333)) for pod in pods}
            server.set({GPU: {"a": 1000} if chance.random() < 0.2 else milli})
            time.sleep(chance.random() / 20)
        server.set({GPU: {"a": 300, "b": 300, "c": 300}})
        for _, log in running:
            grows(log, 3)
    assert overlaps(written(tmp_path)) == []


def test_the_server_is_killed_again_and_again(server: Serving, tmp_path: Path) -> None:
    """Programs wait and go on with the next one; nobody runs free, and two shares never have the GPU at one time."""
    chance = random.Random(11)
    with programs(server, tmp_path, *"aab") as running:
        for _ in range(5):
            for _, log in running:
                grows(log, 3)
            time.sleep(chance.random() / 20)
            server.kill()
            lines = [log.read_text().count("\n") for _, log in running]
            time.sleep(0.05)
            after = [log.read_text().count("\n") for _, log in running]
            assert sum(after) <= sum(lines) + len(lines), "at most the turn that was under way is written down"
            server.start()
            server.set({GPU: {"a": 500, "b": 500}})
        for _, log in running:
            grows(log, 3)
    assert overlaps(written(tmp_path)) == []


def test_banks_outlive_the_server(server: Serving, tmp_path: Path) -> None:
    """Killed, or ended in order: the next one begins with what was saved, as far as it was written."""
    serves(server, "a")
    own = tmp_path / "state" / "shares" / GPU / "a.json"
    until(lambda: own.exists() and json.loads(own.read_text())["bank"] > 500_000)
    server.kill()
    saved = json.loads(own.read_text())["bank"]
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= saved
    server.close()
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= saved


@pytest.mark.parametrize("text", ["", "{", "[]", '{"allocated": 1000, "bank": 99999999}'])
def test_files_that_were_changed(server: Serving, tmp_path: Path, text: str) -> None:
    """The pod's copy counts for nothing, a bad one of the node is an empty bank."""
    serves(server, "a")
    own = tmp_path / "state" / "shares" / GPU / "a.json"
    until(lambda: own.exists() and json.loads(own.read_text())["bank"] > 200_000)
    server.kill()
    server.file(GPU, "a").write_text(text)
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= 200_000
    server.kill()
    own.write_text(text)
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    found = server.usage(GPU, "a")
    assert (found["allocated"], found["account"]["balance"] <= 100_000) == (500, True)
    assert "begins empty" in server.log
    serves(server, "a")


def test_a_server_that_stands_still(server: Serving, tmp_path: Path) -> None:
    """Nobody runs longer than its lease, nobody runs free; it goes on as if nothing had been."""
    with programs(server, tmp_path, "a", "b") as running:
        for _, log in running:
            grows(log, 5)
        server.process.send_signal(signal.SIGSTOP)
        until(lambda: stands(*(log for _, log in running)))
        server.process.send_signal(signal.SIGCONT)
        for _, log in running:
            grows(log, 5)
    assert overlaps(written(tmp_path)) == []


def test_the_checker_sees_an_overlap() -> None:
    """Of different shares, not of processes of one."""
    assert overlaps({"a": [(0, 10), (5, 15)], "b": [(15, 20)]}) == []
    assert overlaps({"a": [(0, 10), (2, 3)], "b": [(9, 20)]}) == [("a", 10, "b", 9)]
    assert overlaps({"a": [(0, 10)], "b": [(2, 3)]}) == [("a", 10, "b", 2)]
