"""The order of turns: whose is next."""

from __future__ import annotations

from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.ledger import Ledger
from jupyter_gpu_node.shares.rules.turns.order import LEAVES, TurnOrdering
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_state import Turn, TurnShare

TIMING = Timing()
LEASE = TIMING.lease


def test_long_burst_yields_turns_to_others_with_a_claim() -> None:
    """After three of its leases the one that waits longest comes first, until they had one lease together."""
    order = TurnOrdering(TIMING)
    long = TurnShare("long", Ledger(500, TIMING, 0, [Deposit(40 * LEASE, 0)]), want=0, since=2, had=8 * LEASE)
    small = TurnShare("small", Ledger(500, TIMING, LEASE), want=0, since=1)
    assert order.first([small, long], 0) is long
    order.charge(Turn(long, 1, 0), 0, LEAVES * LEASE - 1, claimed=True)
    assert order.first([small, long], 0) is long
    order.charge(Turn(long, 2, 0), 0, 1, claimed=True)
    assert order.first([small, long], 0) is small
    order.charge(Turn(small, 3, 0, yielded=True), 0, LEASE - 1, claimed=True)
    assert order.first([small, long], 0) is small
    order.charge(Turn(small, 4, 0, yielded=True), 0, 1, claimed=True)
    assert order.first([small, long], 0) is long
