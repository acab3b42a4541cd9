"""The bank: to the microsecond, and never more than its cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.turns.bank import Bank, Deposit

EXPIRY = 1_000


def a_bank(*deposits: tuple[int, int], cap: int = 10_000) -> Bank:
    return Bank(cap, EXPIRY, (Deposit(*one) for one in deposits))


@pytest.mark.parametrize(("now", "balance"), [(0, 30), (999, 30), (1_000, 20), (1_009, 20), (1_010, 0)])
def test_a_deposit_is_gone_when_it_expires(now: int, balance: int) -> None:
    """It can be spent the microsecond before that moment, and not at it."""
    assert a_bank((10, 0), (20, 10)).balance(now) == balance


def test_the_oldest_is_spent_first_and_expires_first() -> None:
    """The deposit that would be lost next is spent first."""
    bank = a_bank((10, 0), (20, 10))
    assert bank.expires(5) == 1_000
    assert bank.spend(100, 104) == 4
    assert bank.deposits == (Deposit(6, 0), Deposit(20, 10))
    assert bank.spend(104, 110) == 6
    assert bank.expires(110) == 1_010


@pytest.mark.parametrize(
    ("start", "end", "paid", "left"),
    [
        (0, 29, 29, 1),
        (0, 30, 30, 0),  # exactly what it has
        (0, 31, 30, 0),
        (995, 1_020, 15, 0),  # 5 of the first before it expires, 10 of the second: up to its own expiry
        (1_000, 1_004, 4, 16),
        (1_010, 1_020, 0, 0),
        (5, 5, 0, 30),
    ],
)
def test_spending_stops_where_nothing_is_left(start: int, end: int, paid: int, left: int) -> None:
    """Paid is contiguous from the start: exactly, less, more than there is, and across an expiry."""
    bank = a_bank((10, 0), (20, 10))
    assert min(bank.reach(start), end - start) == paid
    assert bank.spend(start, end) == paid
    assert bank.balance(end if paid == end - start else start + paid) == left


def test_above_the_cap_the_oldest_makes_room() -> None:
    """The bank stays full, of the freshest."""
    bank = a_bank((10, 0), (20, 10), cap=25)
    assert bank.deposits == (Deposit(5, 0), Deposit(20, 10))
    bank.resize(12)
    assert list(bank.deposits) == [Deposit(12, 10)]
    assert bank.lost == 18
    bank.resize(100)
    bank.deposit(0, 20)
    assert bank.balance(20) == 12


def test_a_bank_of_nothing() -> None:
    """Savings can be switched off."""
    bank = a_bank((10, 0), cap=0)
    assert (bank.balance(0), bank.reach(0), bank.spend(0, 5), bank.expires(0)) == (0, 0, 0, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["save", "spend", "cap"]), st.integers(0, 400), st.integers(0, 500)), max_size=40
    )
)
def test_deposits_are_spent_lost_or_kept(steps: list[tuple[str, int, int]]) -> None:
    """No microsecond appears or vanishes, none expired is spent, and the cap holds, whatever happens."""
    bank, now, saved, spent = a_bank(cap=600), 0, 0, 0
    for what, amount, pause in steps:
        now += pause
        if what == "save":
            bank.deposit(amount, now)
            saved += amount
        elif what == "cap":
            bank.resize(2 * amount)
        else:
            fresh = sum(one.amount for one in bank.deposits if one.at + EXPIRY > now)
            reach = bank.reach(now)
            paid = bank.spend(now, now + amount)
            assert paid == min(reach, amount) <= fresh
            spent += paid
        assert 0 <= bank.balance(now) <= bank.cap
        assert saved == spent + bank.lost + sum(one.amount for one in bank.deposits)
        assert [one.at for one in bank.deposits] == sorted(one.at for one in bank.deposits)
