"""Time shares of several users of one machine: served alike, and no user gets what is another's."""

import fcntl
import os
import signal
import subprocess

import pytest

from jupyter_gpu.backends.local.sharing import files, trust
from jupyter_gpu.backends.local.sharing.rules import revocation
from jupyter_gpu.backends.local.sharing.rules.revocation import Revocation
from tests.backends.local.stage import Remote

from .machine import Machine
from .test_shares import HOG
from .test_trust import listening

ONE, OTHER = 4321, 4322
LOW = 77
"""A number that is lower than theirs."""


pytestmark = pytest.mark.root


def share(machine: Machine, user: int, milli: int, mask: int = 0) -> Remote:
    """A server of that user with a share, which is served."""
    actor = machine.actor()
    if user:
        actor.ask("become", user=user, reads=True, mask=mask)
    server = machine.server(actor)
    server.ask("request", milli=milli)
    machine.served(server)
    return server


def test_users_share_a_gpu_and_an_arbiter(machine: Machine) -> None:
    """The first user's arbiter serves all; neither user may inspect the other's processes, and no turns overlap."""
    first, second = share(machine, ONE, 500), share(machine, OTHER, 500)
    for server in (first, second):
        machine.run(server, *HOG)
    machine.more(500)
    assert trust.arbiter_user(machine.state) == ONE
    machine.until(lambda: {work.owner for work in machine.board().log()} == {first.uid, second.uid}, "both to run")
    assert machine.sums().overlaps == 0


def test_strict_umask_keeps_no_user_out(machine: Machine) -> None:
    """The first user's files would be its own alone: its arbiter serves the other all the same, without trouble."""
    first = share(machine, ONE, 500, mask=0o077)
    subprocess.run(["chmod", "-R", "a+rX", str(machine.state / "simulated")], check=True)
    second = share(machine, OTHER, 500)
    assert machine.run(second, "kernels:10:100", "sync").lines()[-1] == "done"
    second.ask("notify")
    machine.until(lambda: second.ask("sample")["shares"], "the use of the share")
    machine.until(lambda: "ShareServerMissing" not in machine.conditions(second), "no complaint")
    pid = machine.arbiter()
    first.kill()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    assert trust.arbiter_user(machine.state) == OTHER


def test_another_users_arbiter_takes_over(machine: Machine) -> None:
    """The one that was there is killed with its server: the programs of the other go on, by the sockets of the next."""
    first, second = share(machine, ONE, 250), share(machine, OTHER, 500)
    program = machine.run(second, *HOG)
    machine.more(100)
    pid = machine.arbiter()
    assert trust.arbiter_user(machine.state) == ONE
    first.kill()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    assert trust.arbiter_user(machine.state) == OTHER
    machine.more(200)
    assert not program.ended()
    assert machine.sums().overlaps == 0


def test_a_forged_mark_is_no_entrance(machine: Machine) -> None:
    """A program of another user that carries the pod's mark fits neither by its user nor by its environment."""
    owner, thief = share(machine, ONE, 500), share(machine, OTHER, 250)
    forged = machine.run(
        thief, *HOG, JUPYTER_GPU_POD=owner.uid, JUPYTER_GPU_GATE=str(machine.socket(owner).parent.resolve())
    )
    machine.until(lambda: f"process {forged.pid} is of user {OTHER}" in machine.log(ONE), "the refusal")
    assert machine.sums().launches == 0


def test_roots_pod_is_served_by_a_users_arbiter(machine: Machine) -> None:
    """A user cannot look at root's processes; that they are root's is enough."""
    share(machine, ONE, 250)
    server = share(machine, 0, 500)
    assert trust.arbiter_user(machine.state) == ONE
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


def test_folder_made_by_another_user_is_not_used(machine: Machine) -> None:
    """A folder with a user's number is not that user's: the panel says so, and another user's arbiter serves."""
    user = machine.actor()
    user.ask("become", user=ONE, reads=True)
    server = machine.server(user)
    (machine.state / files.ARBITERS / str(ONE)).mkdir(parents=True)
    (machine.state / files.ARBITERS).chmod(0o1777)
    server.ask("request", milli=250)
    words = "can be changed by others"
    machine.until(lambda: words in machine.conditions(server).get("ShareServerMissing", ""), "the condition")
    share(machine, OTHER, 500)
    machine.served(server)
    machine.until(lambda: "ShareServerMissing" not in machine.conditions(server), "its end")
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


# --- whose arbiter is believed ----------------------------------------------------------------------------------------


def test_pretended_arbiter_serves_no_program(roots: Machine) -> None:
    """A user with a lower number listens as arbiters do: all programs go on, and find the one that has the lock."""
    first, second = share(roots, ONE, 500), share(roots, OTHER, 500)
    programs = [roots.run(server, *HOG) for server in (first, second)]
    roots.more(50)
    with listening(roots.state, LOW):
        assert trust.listening(roots.state) == {LOW, ONE}
        for server in (first, second):
            server.ask("notify")
            server.ask("sample")
        link = files.gate(roots.state, second.uid).readlink()
        assert link == files.sockets(roots.state, ONE, second.uid)
        roots.more(200)
        assert not any(program.ended() for program in programs)
    assert roots.sums().overlaps == 0


def test_arbiter_of_an_ordinary_user_serves_others_with_a_warning(roots: Machine) -> None:
    """There may be no better one; its own user is not warned, nor is one that trusts the owner of the directory."""
    first, second = share(roots, ONE, 250), share(roots, OTHER, 250)
    told = roots.until(lambda: roots.conditions(second).get("ShareNotice"), "the notice")
    assert f"by a process of user {ONE}" in told
    assert "have root do it" in told
    assert "ShareNotice" not in roots.conditions(first)
    second.ask("request", milli=0)
    roots.until(lambda: "ShareNotice" not in roots.conditions(second), "silence, as it has no share")
    second.ask("request", milli=250)
    roots.until(lambda: "ShareNotice" in roots.conditions(second), "the notice")
    os.chown(roots.state, ONE, -1)
    second.ask("notify")
    roots.until(lambda: "ShareNotice" not in roots.conditions(second), "silence")


@pytest.mark.parametrize("owner", [0, ONE])
def test_an_ordinary_user_takes_no_share_of_others(roots: Machine, owner: int) -> None:
    """An arbiter of the state directory's owner is obeyed.

    Else the share stays, and the panel says which user wants what.
    """
    os.chown(roots.state, owner, -1)
    share(roots, ONE, 250)
    server = share(roots, OTHER, 250)
    file = files.sockets(roots.state, ONE, server.uid) / revocation.NAME
    draft = roots.state.parent / "draft"  # a server that reads meanwhile finds none of root's
    draft.write_bytes(revocation.encode([Revocation("key", roots.uuids[0], "It kept the GPU.")]))
    os.chown(draft, ONE, -1)
    draft.rename(file)
    server.ask("notify")
    if owner == ONE:
        roots.until(lambda: "ShareTakenAway" in roots.conditions(server), "the revocation")
        assert server.ask("view")["amounts"]["attached"] == 0
        return
    words = f"User {ONE}'s process wants your share of {roots.uuids[0]} to be taken away, and says: It kept the GPU."
    roots.until(lambda: words in roots.conditions(server).get("ShareNotice", ""), "the notice")
    assert server.ask("view")["amounts"]["attached"] == 250
    assert "ShareTakenAway" not in roots.conditions(server)
    file.unlink()
    server.ask("notify")
    roots.until(lambda: words not in roots.conditions(server).get("ShareNotice", ""), "its end")


def test_user_reads_which_untrusted_arbiters_there_are(roots: Machine) -> None:
    """One holds the lock of arbiters and serves no share; another one listens."""
    lock = files.open_lock(roots.state)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with listening(roots.state, LOW):
        actor = roots.actor()
        actor.ask("become", user=ONE, reads=True)
        server = roots.server(actor)
        server.ask("request", milli=250)
        words = f"user {LOW} claims to hand out GPU time"
        roots.until(lambda: words in roots.conditions(server).get("ShareServerMissing", ""), "the condition")
        os.close(lock)
        roots.served(server)
        roots.until(lambda: "ShareServerMissing" not in roots.conditions(server), "its end")
