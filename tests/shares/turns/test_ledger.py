"""The books of one share, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.ledger import Ledger
from jupyter_gpu_node.shares.rules.turns.timing import LIMITS, Timing

TIMING = Timing(period=100_000, savings=3, expiry=1_000_000)
Q = 25_000  # of 250 milli


def a_ledger(slice_time: int = Q, *deposits: tuple[int, int]) -> Ledger:
    return Ledger(250, TIMING, slice_time, (Deposit(*one) for one in deposits))


@pytest.mark.parametrize("used", [0, 1, Q - 1, Q])
def test_unwanted_time_of_a_slice_is_saved(used: int) -> None:
    """Without demand, with less than the slice or exactly it, the rest is deposited, to the microsecond."""
    books = a_ledger()
    books.run(0, used, contested=True, claimed=True)
    books.end_period(100_000)
    found = books.account(100_000)
    assert (found.guaranteed, found.borrowed, found.overrun) == (used, 0, 0)
    assert (found.slice, found.balance) == (Q, Q - used)
    assert found.expires == (1_100_000 if used < Q else None)


@pytest.mark.parametrize(
    ("used", "borrowed", "late"),
    [(Q, 0, 0), (Q + 1, 1, 0), (Q + 9_999, 9_999, 0), (Q + 10_000, 10_000, 0), (Q + 10_001, 10_000, 1)],
)
def test_demand_above_the_slice_borrows(used: int, borrowed: int, late: int) -> None:
    """The missing part comes from the bank, and what even that has not is owed."""
    books = a_ledger(Q, (10_000, 0))
    assert books.claim_time(0) == Q + 10_000
    books.run(0, used, contested=True, claimed=True)
    found = books.account(used)
    assert (found.guaranteed, found.borrowed, found.overrun) == (Q, borrowed, late)
    assert (found.slice, found.balance) == (-late, 10_000 - borrowed)


def test_unclaimed_time_costs_no_savings() -> None:
    """Alone, time beyond the slice is free. Beside a share without a claim the bank pays, as it keeps that away."""
    books = a_ledger(Q, (10_000, 0))
    books.run(0, Q + 500, contested=False, claimed=False)
    assert (books.account(Q).idle, books.account(Q).balance) == (500, 10_000)
    books.run(Q + 500, Q + 800, contested=True, claimed=False)
    found = books.account(Q + 800)
    assert (found.idle, found.borrowed, found.balance) == (500, 300, 9_700)


def test_withheld_time_is_owed_and_not_saved() -> None:
    """With demand at the end of the period, as much as it waited stays slice; the rest it did not want."""
    books = a_ledger()
    books.wait(80_000, 90_000)
    books.end_period(100_000)
    assert (books.slice, books.account(100_000).balance) == (Q + 10_000, Q - 10_000)
    books.wait(100_000, 200_000)
    books.end_period(200_000)
    assert (books.slice, books.account(200_000).balance) == (2 * Q + 10_000, Q - 10_000)
    books.end_period(300_000)
    assert books.slice == Q
    assert books.account(300_000).balance == 3 * Q  # its cap


def test_waiting_counts_in_its_own_period() -> None:
    """A share that waited before, and could have run since, has saved what it did not use since."""
    books = a_ledger()
    books.wait(90_000, 100_000)
    books.end_period(100_000)
    books.end_period(200_000)
    assert books.slice == Q
    assert books.account(200_000).balance == Q - 10_000 + Q + 10_000


def test_crumbs_wait_but_savings_do_not() -> None:
    """A turn must be worth the change of hands: a quarter of a lease or slice; with savings the shortest turn."""
    for slice_time, deposit, claims in ((4_999, 0, False), (5_000, 0, True), (1_000, 999, False), (1_000, 1_000, True)):
        books = a_ledger(slice_time, (deposit, 0))
        assert books.has_claim(0) is claims


def test_slice_earned_on_loan_goes_back() -> None:
    """A share that shrinks keeps of its slice what the rest of it earned; debts stay; growth gives nothing now."""
    books = a_ledger(20_001)
    books.resize(125, 250)
    assert (books.slice, books.bank.cap) == (10_000, 3 * Q)
    books.resize(500, 500)
    assert books.slice == 10_000
    owing = a_ledger(-100)
    owing.resize(1, 1)
    assert owing.slice == -100


def test_debts_are_paid_before_anything_else() -> None:
    """A share that owes has no claim, whatever it has saved."""
    books = a_ledger(1_000)
    books.run(0, 31_000, contested=True, claimed=True)
    assert (books.slice, books.claim_time(31_000), books.saved(31_000)) == (-30_000, 0, False)
    rich = a_ledger(-5, (10_000, 0))
    assert (rich.claim_time(0), rich.saved(0), rich.has_claim(0)) == (0, False, False)
    books.end_period(100_000)
    assert (books.slice, books.claim_time(100_000)) == (-5_000, 0)
    books.end_period(200_000)
    assert (books.slice, books.claim_time(200_000)) == (20_000, 20_000)


def test_a_change_of_hands_is_paid_back_once() -> None:
    """At most what the turn took from the slice is paid back, its overrun first."""
    books = a_ledger(1_000)
    books.run(0, 1_200, contested=True, claimed=True)
    assert books.refund(300) == 300
    found = books.account(1_200)
    assert (found.guaranteed, found.overrun, found.slice) == (900, 0, 100)
    assert books.refund(300) == 0
    books.switch(40, 1_200)
    assert (books.slice, books.account(1_200).switching) == (60, 40)


@pytest.mark.parametrize(("deposit", "slice_time", "balance"), [(0, -40, 0), (30, -10, 0), (40, 0, 0), (100, 0, 60)])
def test_bank_pays_for_a_change_of_hands(deposit: int, slice_time: int, balance: int) -> None:
    """Its bank pays what the slice has not; only what is left then is owed."""
    books = a_ledger(60, (deposit, 0))
    books.switch(100, 10)
    found = books.account(10)
    assert (found.slice, found.balance, found.switching) == (slice_time, balance, 100)


def test_waiting_without_a_claim_is_throttled() -> None:
    """Users see how much of the waiting came from having used up everything."""
    books = a_ledger(5)
    books.wait(0, 100)
    books.run(100, 105, contested=True, claimed=True)
    books.wait(105, 205)
    found = books.account(205)
    assert (found.waited, found.throttled) == (200, 100)


@given(st.integers(-300_000, 100_000), st.integers(1, 400), st.integers(0, 3), st.integers(1, 1000))
def test_sleeping_is_the_same_as_living_through_it(slice_time: int, periods: int, savings: int, milli: int) -> None:
    """After any rest the books are those of one period after another."""
    timing = Timing(savings=savings, expiry=500_000)
    slept, lived = (Ledger(milli, timing, min(slice_time, timing.slice(milli))) for _ in range(2))
    end = 100_000 * periods
    slept.skip_idle_periods(end, periods)
    for number in range(1, periods + 1):
        lived.end_period(100_000 * number)
    assert slept.account(end) == lived.account(end)
    assert slept.bank.deposits == lived.bank.deposits


def test_settings_that_cannot_work_are_refused() -> None:
    """The error names the reason."""
    for name, (least, most) in LIMITS.items():
        for wrong in (least - 1, most + 1):
            with pytest.raises(ValueError, match=f"{name} is {wrong}; it must be from {least} to {most}"):
                Timing(**{name: wrong})
    with pytest.raises(ValueError, match="shorter"):
        Timing(lease=30_000, least=40_000)
    with pytest.raises(ValueError, match="shorter"):
        Timing(period=10_000, lease=20_000)
    assert (TIMING.slice(250), TIMING.cap(250)) == (Q, 3 * Q)
