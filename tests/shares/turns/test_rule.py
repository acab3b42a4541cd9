"""Rules for programs on several GPUs: which shares the holder pays against."""

import pytest

from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.timing import Timing

MS = 1_000
PERIOD = Timing().period
BARRED = frozenset("b")


@pytest.mark.parametrize(
    ("rule", "holder", "overrun", "idle"),
    [
        pytest.param(Rule("a", barred=BARRED, contesting=BARRED), "a", 50 * MS, 0, id="the first share"),
        pytest.param(Rule("a", barred=BARRED), "a", 0, 50 * MS, id="the first share, none contests"),
        pytest.param(Rule("a", barred=BARRED, contesting=BARRED), "c", 0, 90 * MS, id="another share"),
    ],
)
def test_first_share_alone_pays_against_contesting_shares(rule: Rule, holder: str, overrun: int, idle: int) -> None:
    """The first share owes the time beyond its slice that a barred share has a claim to; for others it is free."""
    arbiter = Arbiter(Timing(), 0)
    arbiter.put({"a": 500, "b": 400, "c": 100}, 0)
    arbiter.apply_rule(rule, 0)
    arbiter.ask("b", 0)
    arbiter.ask(holder, 0)
    while (wake := arbiter.wake) is not None and wake < PERIOD:
        arbiter.tick(wake)
    account = arbiter.account(holder, PERIOD)
    assert (account.overrun, account.idle) == (overrun, idle)
    assert account.guaranteed + account.overrun + account.idle == PERIOD
