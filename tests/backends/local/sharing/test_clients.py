"""Checks of clients that want a pod's share; a slow check holds up no other client's turns: real processes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.sharing import process_checks
from jupyter_gpu.backends.local.sharing.clients import Clients
from jupyter_gpu.backends.local.sharing.process_checks import NOT_YET, ProcessChecks
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.server.peer import Peer
from tests.backends.local.stage import wait_for

UID, OTHER = "1" * 32, "2" * 32
ME = os.geteuid()


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Return the clients of one pod of ours."""
    found = Clients()
    record = Record(UID, ProcessId(1, 1), boot(), namespace())
    found.pods = {UID: OtherPod(record, ME, dead=False)}
    yield found
    found.close()


def peer(process: subprocess.Popen[bytes], user: int = ME) -> Peer:
    """Return the peer of a process, as the socket reports it."""
    found = identify(process.pid)
    assert found is not None
    return Peer(found.pid, user, found.start)


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of that pod."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, MARK: UID}) as found:
        yield found


def answer(clients: Clients, who: Peer, pod: str = UID) -> str:
    """Return the answer, once there is one."""

    def asked() -> list[str]:
        found = clients.check(who, pod)
        return [] if NOT_YET in found else [found]

    found: list[str] = wait_for(asked, "an answer")
    return found[0]


def test_process_with_the_mark_of_the_pod_is_accepted(clients: Clients, program: subprocess.Popen[bytes]) -> None:
    """A process of the pod's user has the share as long as it runs, in a pod that is known."""
    who = peer(program)
    assert answer(clients, who) == ""
    assert "has nothing here" in clients.check(who, OTHER)
    other = Peer(who.pid, who.user + 1, who.start)
    assert f"is of user {who.user + 1}" in clients.check(other, UID)
    assert answer(clients, Peer(who.pid, who.user, who.start + 1)) == f"process {who.pid} has ended"
    clients.pods = {}
    assert "has nothing here" in clients.check(who, UID)


def test_a_mark_of_another_pod_is_none(clients: Clients) -> None:
    """A process without a mark is refused, too."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, MARK: OTHER}) as found:
        assert f"was not started by pod {UID}" in answer(clients, peer(found))


def test_process_older_than_enforcement_is_not_enforced(clients: Clients, program: subprocess.Popen[bytes]) -> None:
    """Its start tells; no process is one while shares are not enforced."""
    who = peer(program)
    assert clients.enforced_pod_of(who.pid, since=who.start) == UID
    assert clients.enforced_pod_of(who.pid, since=who.start + 1) is None
    assert clients.enforced_pod_of(who.pid, since=None) is None
    assert clients.enforced_pod_of(2**22 + 1, since=0) is None


# --- checks that last -------------------------------------------------------------------------------------------------


class Slow:
    """A check that ends on command."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.calls = 0
        self.ended = 0

    def __call__(self) -> str:
        self.calls += 1
        self.end.wait()
        self.ended += 1
        return "the answer"


@pytest.fixture
def slow() -> Iterator[Slow]:
    """One that ends with the test."""
    found = Slow()
    yield found
    found.end.set()


def test_a_look_that_lasts_is_not_waited_for(slow: Slow) -> None:
    """The loop goes on; a later call gets the answer when it is there, of one check."""
    one = ProcessChecks()
    for _ in range(3):
        assert one.ask("a", slow) == NOT_YET
    slow.end.set()
    wait_for(lambda: one.ask("a", slow) == "the answer", "the answer")
    assert slow.calls == 1
    one.close()


def test_after_one_that_lasted_the_next_are_not_waited_for_either(slow: Slow) -> None:
    """For a second a flood of checks costs the loop next to nothing; then it waits again."""
    now = 0.0
    thread = ThreadPoolExecutor(1)
    one = ProcessChecks(lambda: now, thread)
    assert one.ask("a", slow) == NOT_YET
    slow.end.set()
    thread.submit(lambda: None).result()
    gate = threading.Event()
    thread.submit(gate.wait)
    assert one.ask("b", lambda: "b") == NOT_YET
    gate.set()
    thread.submit(lambda: None).result()
    assert one.ask("b", lambda: "other") == "b"
    now = process_checks.REST
    wait_for(lambda: one.ask("c", lambda: "c") == "c", "a check that is waited for")
    one.close()


def test_unfetched_answers_are_forgotten(slow: Slow) -> None:
    """As many as were asked for are never kept; while none has ended, nothing more is begun."""
    one = ProcessChecks()
    for number in range(process_checks.MOST + 5):
        assert one.ask(number, slow) == NOT_YET
    assert one.unfetched == process_checks.MOST
    slow.end.set()
    wait_for(lambda: slow.ended == process_checks.MOST, "the checks")
    assert slow.calls == process_checks.MOST
    wait_for(lambda: one.ask("new", lambda: "") == "", "the answer of another one")
    assert one.unfetched < process_checks.MOST
    one.close()


def test_users_do_not_wait_for_each_other(clients: Clients, program: subprocess.Popen[bytes], slow: Slow) -> None:
    """A process that cannot be inspected holds up those of the same user alone."""
    mine = clients.pods[UID]
    clients.pods = {UID: mine, OTHER: OtherPod(mine.record, ME + 1, dead=False)}
    who = peer(program)
    assert answer(clients, who) == ""
    clients.checks[ME].ask("stuck", slow)
    assert NOT_YET in clients.check(who, UID)
    assert answer(clients, Peer(who.pid, ME + 1, who.start), OTHER) == ""
    clients.pods = {UID: mine}
    assert set(clients.checks) == {ME}
