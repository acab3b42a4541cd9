"""An owner of all of a GPU that leaves memory to a guest: its programs take turns, and the guest has what is idle."""

from __future__ import annotations

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Grant, Revoke
from jupyter_gpu_node.shares.rules.turns.actions import Action, Send
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.books import GpuBooks
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.lease_manager import LeaseManager
from jupyter_gpu_node.shares.rules.turns.order import GUEST_LEASE
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.rules.turns.timing import Timing

WHOLE, LENDABLE, GUEST = Terms(1000), Terms(1000, 60), Terms(0, 20)
PERIOD = Timing().period


def manager_of(**terms: Terms) -> LeaseManager:
    """Return a manager of one GPU with these shares."""
    made = LeaseManager(Arbiter(Timing(), 0), 0)
    made.set(terms, 0)
    return made


def told(actions: list[Action], name: str) -> list[object]:
    """Return the leases that programs of a share are given, and the ends of them."""
    sends = [one for one in actions if isinstance(one, Send) and one.client.share.name == name]
    return [one.message for one in sends if isinstance(one.message, (Grant, Revoke))]


def test_a_guest_runs_until_the_owner_has_work() -> None:
    """And gives the GPU back within a lease of its own; then the owner has it."""
    manager = manager_of(ann=LENDABLE, eve=GUEST)
    ann, eve = manager.join("ann", 0)[0], manager.join("eve", 0)[0]
    (grant,) = told(manager.receive(eve, Ask(), 0), "eve")
    assert isinstance(grant, Grant)
    assert grant.time <= GUEST_LEASE
    (revoke,) = told(manager.receive(ann, Ask(), 1000), "eve")
    assert isinstance(revoke, Revoke)
    (owners,) = told(manager.receive(eve, Done(0, 1, 1), 2000), "ann")
    assert isinstance(owners, Grant)
    assert owners.time < FOREVER
    assert told(manager.tick(2000 + PERIOD), "eve") == [], "it waits for as long as the owner works"
    assert told(manager.receive(ann, Done(None, 1, 1), 3 * PERIOD), "eve") != []


def test_a_whole_gpu_is_lent_while_its_program_runs_and_is_whole_again() -> None:
    """Work that was queued without turns drains first; whole again, the program needs no turns."""
    manager = manager_of(ann=WHOLE)
    ann, out = manager.join("ann", 0)
    (grant,) = told(out, "ann")
    assert isinstance(grant, Grant)
    assert grant.time == FOREVER
    (revoke,) = told(manager.set({"ann": LENDABLE, "eve": GUEST}, 10), "ann")
    assert isinstance(revoke, Revoke)
    (turn,) = told(manager.receive(ann, Done(0, revoke.number, 1), 20), "ann")
    assert isinstance(turn, Grant)
    assert turn.time < FOREVER
    assert any(isinstance(one, Grant) and one.time == FOREVER for one in told(manager.set({"ann": WHOLE}, 30), "ann"))


def test_an_owner_that_rests_keeps_all_of_the_time() -> None:
    """Nobody is there to whom it could be lent but guests, who need none of their own."""
    manager, books = manager_of(ann=LENDABLE, eve=GUEST), GpuBooks(Elastic(), 0)
    eve = manager.join("eve", 0)[0]
    manager.receive(eve, Ask(), 0)
    for number in range(1, 100):
        assert books.end_period(manager, number * PERIOD) == {}
    usage = books.usage(manager, "ann", 100 * PERIOD)
    assert (usage.allocated, usage.effective) == (1000, 1000)
