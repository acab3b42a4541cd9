"""Faults of the server, its clients, its sockets and its files: each has a clear outcome."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.framing import MOST, SIZE
from jupyter_gpu_node.shares.rules.protocol import (
    Ask,
    Done,
    FromClient,
    Grant,
    Memory,
    Need,
    Revoke,
    encode,
)
from jupyter_gpu_node.shares.server import gate_socket
from tests.shares.client import PATIENCE, Ended, now, overlaps
from tests.shares.serve import Serving
from tests.shares.world import GPU, connect, grows, programs, serves, stands, until, written


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
    """The reason is in the log; another process of the same share does not notice."""
    with connect(server, "a") as good, connect(server, "a") as bad:
        good.grant()
        bad.raw(data)
        bad.socket.shutdown(socket.SHUT_WR)
        assert bad.ended()
        until(lambda: reason in server.log)
        assert good.granted().number == 1, "its lease goes on"
        serves(server, "a")


def test_a_message_in_pieces(server: Serving) -> None:
    """It is understood, however slowly it comes."""
    with connect(server, "a") as a:
        for byte in encode(Ask(7)):
            a.raw(bytes([byte]))
        assert a.granted() == Grant(7, 1)


def test_endless_sender_is_read_a_little_at_a_time(server: Serving) -> None:
    """All of it is read, in the end; another share has its turns meanwhile."""
    with contextlib.ExitStack() as stack:
        flood = [stack.enter_context(connect(server, "a")) for _ in range(4)]
        begin = now()
        for one in flood:
            one.send(*[Done()] * 500, Need(7))
        serves(server, "b")
        for one in flood:
            assert isinstance(one.next(), Memory)
        assert now() - begin >= 2000 // (gate_socket.MESSAGES + 4 * gate_socket.READ // SIZE) * round(
            gate_socket.MESSAGE_WINDOW * 1e6
        )


def test_a_million_messages(tmp_path: Path) -> None:
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
    with Serving(tmp_path, unlimited=True) as server:
        server.set({GPU: {"a": 500, "b": 500}})
        with programs(server, tmp_path, "b") as ((_, log),):
            grows(log, 3)
            with connect(server, "a") as a:
                number = 0
                for _ in range(2):  # two leases: what is drawn gives one of them back
                    a.send(Ask())
                    number = a.another(number)
                    a.send(Done(0, 0, number))
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


def test_a_thousand_connections(server: Serving) -> None:
    """One share has its most and no more; the others are served, and it is again when these are gone."""
    count = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = min(256, hard // 2 // 2)
    held: list[socket.socket] = []
    try:
        with connect(server, "b") as b:
            for number in range(count):
                held.append(socket.socket(socket.AF_UNIX))
                held[-1].connect(str(server.socket(GPU, "a")))
                held[-1].settimeout(PATIENCE)
                if number % 100 == 0:
                    b.send(Done(None, 0, b.grant().number))
            for one in held[most:]:
                assert one.recv(1) == b"", "it is refused by its end"
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


def test_connections_beyond_the_limit_of_descriptors_are_refused(tmp_path: Path) -> None:
    """Each share has its part of the descriptors, so that one cannot take them from the others."""
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
    """It is reported once, with its processes; the other waits until it ends."""
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
    """The next one has the GPU, whichever process died at the very moment."""
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
    """The remaining programs go on, and two shares never have the GPU at one time."""
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
    """Two never run at one time, and all get turns, while shares are resized, removed, given again, and whole."""
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
    """Programs wait and go on with the next one; none runs free, and two shares never have the GPU at one time."""
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
    until(lambda: own.exists() and json.loads(own.read_text())["balance"] > 500_000)
    server.kill()
    saved = json.loads(own.read_text())["balance"]
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= saved
    server.close()
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= saved


def test_another_pod_in_the_same_directory(server: Serving, tmp_path: Path) -> None:
    """A slot of an ended pod serves the next one at once: the old share removes nothing of it."""
    serves(server, "a")
    server.set({GPU: {"next": 500, "b": 500}}, next="a")
    serves(server, "a")
    until(lambda: server.file(GPU, "a").exists())
    until(lambda: not (tmp_path / "state" / "shares" / GPU / "a.json").exists())
    until(lambda: server.usage(GPU, "next")["clients"] == 0)
    with connect(server, "a") as program:
        program.grant()
        assert server.usage(GPU, "next")["clients"] == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"allocated": 1000, "bank": 99999999}'])
def test_files_that_were_changed(server: Serving, tmp_path: Path, text: str) -> None:
    """The pod's copy counts for nothing, a bad one of the node is an empty bank."""
    serves(server, "a")
    own = tmp_path / "state" / "shares" / GPU / "a.json"
    until(lambda: own.exists() and json.loads(own.read_text())["balance"] > 200_000)
    server.kill()
    server.file(GPU, "a").write_text(text)
    server.start()
    server.set({GPU: {"a": 500, "b": 500}})
    assert server.usage(GPU, "a")["account"]["balance"] >= 200_000
    server.kill()
    own.write_text(text)
    server.start()
    begin = now()
    server.set({GPU: {"a": 500, "b": 500}})
    found = server.usage(GPU, "a")
    assert found["allocated"] == 500
    assert found["account"]["balance"] <= (now() - begin) // 2, "no more than it could save since"
    assert "begins empty" in server.log
    serves(server, "a")


def test_a_server_that_stands_still(server: Serving, tmp_path: Path) -> None:
    """No program runs longer than its lease meanwhile, and all go on with it as before."""
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
    """It reports overlaps of different shares, not of processes of one."""
    assert overlaps({"a": [(0, 10), (5, 15)], "b": [(15, 20)]}) == []
    assert overlaps({"a": [(0, 10), (2, 3)], "b": [(9, 20)]}) == [("a", 10, "b", 9)]
    assert overlaps({"a": [(0, 10)], "b": [(2, 3)]}) == [("a", 10, "b", 2)]
