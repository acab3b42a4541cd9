"""Time shares of several users of one machine: served alike, and nobody gets what is another's."""

import os
import signal
import subprocess

import pytest

from jupyter_gpu.backends.local.sharing import places
from tests.backends.stage import Remote

from .machine import Machine
from .test_shares import HOG

ONE, OTHER = 4321, 4322


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
    """Whoever was first serves all; none of them may look into the processes of the other, and none overlaps."""
    first, second = share(machine, ONE, 500), share(machine, OTHER, 500)
    for server in (first, second):
        machine.run(server, *HOG)
    machine.more(500)
    assert places.living(machine.state) == ONE
    assert {work.owner for work in machine.board().log()} == {first.uid, second.uid}
    assert machine.sums().overlaps == 0


def test_a_strict_umask_keeps_nobody_out(machine: Machine) -> None:
    """The first user's files would be its own alone: its arbiter serves the other all the same, without trouble."""
    first = share(machine, ONE, 500, mask=0o077)
    subprocess.run(["chmod", "-R", "a+rX", str(machine.state / "simulated")], check=True)
    second = share(machine, OTHER, 500)
    assert machine.run(second, "kernels:10:100", "sync").lines()[-1] == "done"
    second.ask("poke")
    assert second.ask("sample")["shares"]
    assert "ShareServerMissing" not in machine.conditions(second)
    pid = machine.arbiter()
    first.kill()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    assert places.living(machine.state) == OTHER


def test_another_users_arbiter_takes_over(machine: Machine) -> None:
    """The one that was there is killed with its server: the programs of the other go on, by the sockets of the next."""
    first, second = share(machine, ONE, 250), share(machine, OTHER, 500)
    program = machine.run(second, *HOG)
    machine.more(100)
    pid = machine.arbiter()
    assert places.living(machine.state) == ONE
    first.kill()
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    assert places.living(machine.state) == OTHER
    machine.more(200)
    assert not program.ended()
    assert machine.sums().overlaps == 0


def test_a_forged_mark_is_no_entrance(machine: Machine) -> None:
    """A program of another user that says it is of the pod: neither its user nor its environment fit together."""
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
    assert places.living(machine.state) == ONE
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


def test_what_others_made_first_is_not_used(machine: Machine) -> None:
    """A folder with a user's number that is not that user's: the user is told, and another user's arbiter serves."""
    user = machine.actor()
    user.ask("become", user=ONE, reads=True)
    server = machine.server(user)
    (machine.state / places.ARBITERS / str(ONE)).mkdir(parents=True)
    (machine.state / places.ARBITERS).chmod(0o1777)
    server.ask("request", milli=250)
    machine.until(lambda: "ShareServerMissing" in machine.conditions(server), "the condition")
    assert "can be changed by others" in machine.conditions(server)["ShareServerMissing"]
    share(machine, OTHER, 500)
    machine.served(server)
    machine.until(lambda: "ShareServerMissing" not in machine.conditions(server), "its end")
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"
