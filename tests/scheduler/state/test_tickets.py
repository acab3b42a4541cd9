"""The tickets in use."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_scheduler.rules.state.tickets import Tickets


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_last_ticket_is_the_highest_in_use(steps: list[tuple[bool, int]]) -> None:
    """The rule holds whatever was taken and given back, by one or by several, in any order."""
    tickets = Tickets()
    used: list[int] = []
    for take, ticket in steps:
        if take:
            tickets.take(ticket)
            used.append(ticket)
        elif ticket in used:
            tickets.give_back(ticket)
            used.remove(ticket)
        assert tickets.last == max(used, default=0)


def test_reused_ticket_costs_no_memory() -> None:
    """A pod is replaced with each of its changes, and each time its ticket is given back and taken."""
    tickets = Tickets()
    tickets.take(9)
    sizes = []
    for _ in range(100):
        tickets.take(5)
        tickets.give_back(5)
        sizes.append(len(pickle.dumps(tickets)))
    assert sizes[-1] == sizes[0]
