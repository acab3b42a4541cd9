"""Co-adjustment: each rule by a case, and what must hold whatever the shares do."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.turns.elastic import (
    Adjustment,
    ElasticState,
    PeriodUse,
    PreviousState,
    adjust,
    resume,
)
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.ledger import Ledger, TimeAccount
from jupyter_gpu_node.shares.rules.turns.timing import Timing

RULES = Elastic()
QUICK = Elastic(fade=1, smooth=1)
"""Use before the last periods hardly counts, so cases can be short."""
Standings = Mapping[str, ElasticState]


def rested(allocated: int, effective: int | None = None, peak: float = 0.0) -> ElasticState:
    """A share that has been as it is for long."""
    now = effective or allocated
    use = peak / now
    high, low, lowest = use >= RULES.grow, use < RULES.give, use < RULES.shrink
    return ElasticState(allocated, now, peak, peak, 2 * high, 2 * low, 2 * lowest)


def steady(
    states: Standings, demand: Mapping[str, int], passes: int, rules: Elastic = RULES, *, idle: bool = False
) -> Adjustment:
    """Return the result of so many periods of the same demand; ``idle``: unclaimed time goes to those that want it."""
    outcome = Adjustment(states, {})
    for _ in range(passes):
        outcome = adjust(outcome.states, served(outcome.states, demand, idle=idle), rules)
    return outcome


def served(states: Standings, demand: Mapping[str, int], *, idle: bool = False) -> dict[str, PeriodUse]:
    """Return each share's use in one period: what it has, and perhaps a part of what others leave."""
    used = {name: min(one.effective, demand[name]) for name, one in states.items()}
    left = MILLI_PER_GPU - sum(used.values())
    for name in sorted(used) if idle else ():
        more = min(left, demand[name] - used[name])
        used[name] += more
        left -= more
    return {name: PeriodUse(one.allocated, used[name], demand[name] > one.effective) for name, one in states.items()}


def reasons(outcome: Adjustment) -> dict[str, str]:
    return {name: change.reason for name, change in outcome.changes.items()}


# --- growing and giving -----------------------------------------------------------------------------------------------


def test_one_grows_while_another_gives() -> None:
    """Both happen in one pass, and each share reads its own reason only."""
    before = {"a": rested(500, peak=500), "b": rested(500, peak=200)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 200}), RULES)
    assert outcome.effective == {"a": 550, "b": 450}
    assert reasons(outcome) == {"a": "Grew by what others do not use.", "b": "Gave what it did not use."}


def test_free_milli_are_taken_before_those_of_others() -> None:
    """No share gives while something is free."""
    before = {"a": rested(300, peak=300), "b": rested(500, peak=200)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 200}), RULES)
    assert outcome.effective == {"a": 350, "b": 500}


def test_donors_give_in_proportion_to_their_unused_milli() -> None:
    """They keep as much as makes their use the threshold."""
    before = {"a": rested(400, peak=400), "b": rested(300, peak=100), "c": rested(300, peak=50)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 100, "c": 50}), Elastic(step=30, shrink=0))
    assert outcome.effective == {"a": 430, "b": 290, "c": 280}  # spare: 100 and 200
    outcome = adjust(before, served(before, {"a": 1000, "b": 50, "c": 100}), Elastic(step=50, shrink=0, fade=1))
    assert outcome.effective == {"a": 450, "b": 267, "c": 283}  # rounded for the share that gives a part more


def test_donor_of_less_than_a_thousandth_gives_nothing() -> None:
    """Its part is less than a thousandth of the GPU, and its user reads no reason."""
    before = {"a": rested(400, peak=400), "b": rested(500, peak=100), "c": rested(100, peak=49)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 100, "c": 49}), RULES)
    assert outcome.effective == {"a": 450, "b": 450, "c": 100}
    assert reasons(outcome).keys() == {"a", "b"}


def test_a_donor_keeps_twice_its_use() -> None:
    """It gives once and for all while its use stays as it is."""
    states = {"a": rested(500), "b": rested(500)}
    assert steady(states, {"a": 1000, "b": 120}, 200).effective == {"a": 760, "b": 240}


def test_several_grow_alike() -> None:
    """The little that there is goes to all of them."""
    before = {"a": rested(200, peak=200), "b": rested(200, peak=200), "c": rested(580, peak=580)}
    outcome = adjust(before, served(before, {"a": 900, "b": 900, "c": 580}), Elastic(step=10))
    assert outcome.effective == {"a": 207, "b": 207, "c": 586}


def test_equal_shares_become_level() -> None:
    """Two with the same right to the GPU end with the same part of what a third does not use."""
    states = {"a": rested(250), "b": rested(250), "c": rested(500)}
    alone = steady(states, {"a": 1000, "b": 0, "c": 0}, 200)
    assert alone.effective == {"a": 925, "b": 25, "c": 50}
    assert steady(alone.states, {"a": 1000, "b": 1000, "c": 0}, 200).effective == {"a": 475, "b": 475, "c": 50}


def test_to_be_level_takes_steps_too() -> None:
    """A share does not at once lose what it had for long to one that has its own."""
    before = {"a": rested(250, 750, peak=750), "b": rested(250, peak=250)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 1000}), RULES)
    assert outcome.effective == {"a": 700, "b": 300}
    assert reasons(outcome) == {
        "a": "Gave some of what it had beyond its own: others want as much.",
        "b": "Grew by what others had beyond their own.",
    }


def test_to_be_level_is_one_step_for_each() -> None:
    """This holds where several give, too."""
    before = {"a": rested(200, 400, peak=400), "b": rested(200, 400, peak=400), "c": rested(200, peak=200)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 1000, "c": 1000}), RULES)
    assert outcome.effective == {"a": 375, "b": 375, "c": 250}
    before = {"a": rested(200, 600, peak=600), "b": rested(200, peak=200), "c": rested(200, peak=200)}
    outcome = adjust(before, served(before, {"a": 1000, "b": 1000, "c": 1000}), RULES)
    assert outcome.effective == {"a": 550, "b": 225, "c": 225}


def test_to_be_level_needs_no_demand_for_more() -> None:
    """A share that has enough, but more than its own, goes towards the level as well."""
    before = {"a": rested(250, 750, peak=525), "b": rested(250, peak=250)}
    assert adjust(before, served(before, {"a": 525, "b": 1000}), RULES).effective == {"a": 700, "b": 300}
    assert steady(before, {"a": 525, "b": 1000}, 200).effective == {"a": 500, "b": 500}


def test_share_of_the_whole_gpu_does_not_grow() -> None:
    """A share that has all of the GPU is not told that nothing is free."""
    assert steady({"a": rested(600)}, {"a": 1000}, 50, idle=True).states["a"].reason.startswith("Grew by")


def test_bursts_count_with_the_pauses_between_them() -> None:
    """Half of the time at 300 is more than a share of 100 has, and much less than one of 200."""
    states: Standings = {"a": ElasticState.first(100), "b": ElasticState.first(200)}
    for number in range(200):
        used = 300 if number % 2 else 0
        seen = {"a": PeriodUse(100, used, short=used > 0), "b": PeriodUse(200, used, short=used > 0)}
        states = adjust(states, seen, RULES).states
    assert {name: one.effective for name, one in states.items()} == {"a": 200, "b": 200}


def test_nothing_is_free() -> None:
    """The reason says so, once, and is gone when it wants no more."""
    before = {"a": rested(500, peak=500), "b": rested(500, peak=400)}
    told = adjust(before, served(before, {"a": 1000, "b": 400}), RULES)
    assert told.effective == {"a": 500, "b": 500}
    assert reasons(told) == {"a": "Wants more, and nothing is free."}
    again = adjust(told.states, served(told.states, {"a": 1000, "b": 400}), RULES)
    assert (again.changes, again.states["a"].reason) == ({}, "Wants more, and nothing is free.")
    over = steady(again.states, {"a": 300, "b": 400}, 20)
    assert over.states["a"].reason == ""


def test_reasons_are_joined() -> None:
    """A share that gave back and wants more reads both reasons: the first explains what it has."""
    before = {"a": rested(500, 900, peak=900), "b": rested(500, 100)}
    states = adjust(before, {"a": PeriodUse(500, 900), "b": PeriodUse(500, 100)}, RULES).states
    for _ in range(4):
        states = adjust(states, {"a": PeriodUse(500, 500), "b": PeriodUse(500, 500)}, RULES).states
    assert states["a"].reason == "Gave back what was only lent. Wants more, and nothing is free."
    assert steady(states, {"a": 300, "b": 400}, 20).states["a"].reason == "Gave back what was only lent."


def test_growth_is_limited_to_the_free_amount() -> None:
    """The last step is a small one."""
    before = {"a": rested(900, 970, peak=970), "b": rested(20, peak=15)}
    assert adjust(before, served(before, {"a": 1000, "b": 15}), RULES).effective == {"a": 980, "b": 20}


@pytest.mark.parametrize("periods", [1, 2, 3])
def test_growing_and_giving_need_patience(periods: int) -> None:
    """One busy period is no reason to take from others."""
    rules = replace(QUICK, patience=3)
    states = {"a": ElasticState(500, 500, 250.0, 0.5), "b": ElasticState(500, 500, 250.0, 0.5)}
    moved = steady(states, {"a": 1000, "b": 0}, periods, rules).effective != {"a": 500, "b": 500}
    assert moved == (periods == 3)


# --- shrinking --------------------------------------------------------------------------------------------------------


def test_idle_share_shrinks_towards_its_use() -> None:
    """It shrinks although no other wants more, and not below the floor."""
    states = {"a": rested(250), "b": rested(250, peak=150)}
    outcome = adjust(states, served(states, {"a": 0, "b": 150}), RULES)
    assert reasons(outcome) == {"a": "Shrank: it uses little of it."}
    assert steady(states, {"a": 0, "b": 150}, 200).effective == {"a": 25, "b": 250}
    assert steady(states, {"a": 30, "b": 150}, 200).effective == {"a": 100, "b": 250}


def test_between_two_thresholds_it_gives_but_does_not_shrink() -> None:
    """No other share wants it, so it stays."""
    assert steady({"a": rested(500)}, {"a": 200}, 200).changes == {}


@pytest.mark.parametrize(("floor", "kept"), [(0.1, 1), (0, 1), (0.5, 3), (1, 5)])
def test_a_small_share_keeps_something(floor: float, kept: int) -> None:
    """It is rounded up: a share of nothing could not tell that it wants more."""
    assert steady({"a": rested(5)}, {"a": 0}, 200, Elastic(floor=floor)).effective == {"a": kept}


def test_waiting_share_does_not_give() -> None:
    """Little use is no proof of little demand."""
    before = {"a": rested(500, peak=500), "b": rested(500)}
    seen = {"a": PeriodUse(500, 500, short=True), "b": PeriodUse(500, 0, short=True)}
    assert adjust(before, seen, RULES).effective == {"a": 500, "b": 500}


# --- back again -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("now", [PeriodUse(500, 90), PeriodUse(500, 900), PeriodUse(500, 3, short=True)])
def test_a_donor_has_its_own_back_in_one_pass(now: PeriodUse) -> None:
    """The share that had grown pays for it, and does not grow again in that pass."""
    before = {"a": rested(250, 600, peak=600), "b": rested(250, 300, peak=300), "c": rested(500, 100, peak=50)}
    outcome = adjust(before, {"a": PeriodUse(250, 600), "b": PeriodUse(250, 300), "c": now}, RULES)
    assert outcome.effective == {"a": 250, "b": 250, "c": 500}
    assert reasons(outcome) == {
        "a": "Gave back what was only lent.",
        "b": "Gave back what was only lent.",
        "c": "Has its own back.",
    }


def test_use_on_average_brings_its_own_back_too() -> None:
    """It does although the last period was a quiet one."""
    before = {"a": ElasticState(500, 100, 95.0, 95.0)}
    assert adjust(before, {"a": PeriodUse(500, 80)}, RULES).effective == {"a": 500}


def test_loans_are_recalled_in_proportion() -> None:
    """Only as much as is missing is taken back."""
    before = {"a": rested(200, 500, peak=500), "b": rested(200, 300, peak=300), "c": rested(300, 100, peak=50)}
    outcome = adjust(before, {"a": PeriodUse(200, 500), "b": PeriodUse(200, 300), "c": PeriodUse(300, 100)}, RULES)
    assert outcome.effective == {"a": 425, "b": 275, "c": 300}


LENT = "Gave back what was only lent."


def test_share_that_gave_back_does_not_grow_in_that_pass() -> None:
    """It does not grow although it wants more, and another could give."""
    before = {"a": rested(200, 500, peak=500), "b": rested(300, 200), "c": rested(300, peak=100)}
    outcome = adjust(before, {"a": PeriodUse(200, 500), "b": PeriodUse(300, 300), "c": PeriodUse(300, 100)}, RULES)
    assert outcome.effective == {"a": 400, "b": 300, "c": 300}
    assert reasons(outcome)["a"] == LENT


@pytest.mark.parametrize("use", [600, 100])
def test_share_that_gave_back_does_not_give_more_in_that_pass(use: int) -> None:
    """Another that wants more gets nothing of it: neither from a donor nor to become level."""
    before = {"a": rested(100, 600, peak=use), "b": rested(200, 100), "c": rested(300, peak=300)}
    outcome = adjust(before, {"a": PeriodUse(100, use), "b": PeriodUse(200, 100), "c": PeriodUse(300, 300)}, RULES)
    assert outcome.effective == {"a": 500, "b": 200, "c": 300}
    assert reasons(outcome)["a"] == LENT


def test_share_that_recalled_its_own_gives_nothing_for_a_while() -> None:
    """A short burst is followed by others more often than not."""
    before = {"a": rested(500, 900, peak=900), "b": rested(500, 100)}
    back = adjust(before, {"a": PeriodUse(500, 900), "b": PeriodUse(500, 100)}, RULES)
    assert back.effective == {"a": 500, "b": 500}
    assert steady(back.states, {"a": 1000, "b": 0}, RULES.fade - 1).effective == {"a": 500, "b": 500}
    assert steady(back.states, {"a": 1000, "b": 0}, 4 * RULES.fade).effective["a"] > 800


def test_a_new_share_has_its_own_at_once() -> None:
    """The loans of others make room for it."""
    before = {"a": rested(500, 1000, peak=1000)}
    outcome = adjust(before, {"a": PeriodUse(500, 1000), "b": PeriodUse(500, 0)}, RULES)
    assert outcome.effective == {"a": 500, "b": 500}
    assert reasons(outcome) == {"a": "Gave back what was only lent."}


def test_another_allocation_counts_at_once() -> None:
    """A share that is resized, up or down, begins anew with that."""
    before = {"a": rested(500, 700, peak=700), "b": rested(300, 100)}
    outcome = adjust(before, {"a": PeriodUse(200, 700), "b": PeriodUse(400, 0)}, RULES)
    assert outcome.effective == {"a": 200, "b": 400}
    assert reasons(outcome) == {"a": "Its own is 200 now.", "b": "Its own is 400 now."}


def test_a_share_that_is_gone_is_forgotten() -> None:
    """Its milli is free."""
    before = {"a": rested(300, peak=300), "b": rested(700, peak=700)}
    outcome = adjust(before, {"a": PeriodUse(300, 300)}, RULES)
    assert outcome.effective == {"a": 350}


def test_share_is_not_idle_after_a_restart() -> None:
    """A file says how much a share had, and not how much it uses."""
    kept = {"a": ElasticState.first(500, 700), "b": ElasticState.first(500, 300)}
    outcome = adjust(kept, {"a": PeriodUse(500, 0), "b": PeriodUse(500, 0)}, RULES)
    assert outcome.effective == {"a": 700, "b": 300}
    assert steady(kept, {"a": 0, "b": 0}, RULES.fade // 2).effective == {"a": 700, "b": 300}
    assert steady({"a": ElasticState.first(100, 900)}, {"a": 0}, RULES.fade // 2).effective == {"a": 900}


@pytest.mark.parametrize("effective", [-5, 0, 5_000])
def test_impossible_file_breaks_no_sum(effective: int) -> None:
    """The shares stay within the GPU, whatever an earlier file says."""
    kept = {"a": ElasticState.first(500, effective), "b": ElasticState.first(500, 900)}
    assert 1 <= kept["a"].effective <= MILLI_PER_GPU
    after = adjust(kept, {"a": PeriodUse(500, 0), "b": PeriodUse(500, 0)}, RULES).effective
    assert sum(after.values()) <= MILLI_PER_GPU
    assert min(after.values()) >= 1


# --- bad input --------------------------------------------------------------------------------------------------------


def test_more_than_the_gpu_is_allocated() -> None:
    """It is refused, and nothing of it is put into force."""
    with pytest.raises(ValueError, match="together at most 1000 milli, not 1001"):
        adjust({}, {"a": PeriodUse(500, 0), "b": PeriodUse(501, 0)}, RULES)


@pytest.mark.parametrize(("allocated", "used"), [(0, 0), (-1, 0), (1001, 0), (500, -1)])
def test_impossible_use_is_refused(allocated: int, used: int) -> None:
    """It is distinguished from use that is only unusual."""
    with pytest.raises(ValueError, match="A share has 1 to 1000 milli"):
        PeriodUse(allocated, used)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"grow": 1.1}, "grow is 1.1; it must be from 0.01 to 1"),
        ({"shrink": float("nan")}, "shrink is nan; it must be from 0 to 1"),
        ({"step": 0}, "step is 0; it must be from 1 to 1000"),
        ({"step": 0.5}, "step is 0.5; it must be a number, whole"),
        ({"patience": True}, "patience is True; it must be a number"),
        ({"grow": "0.9"}, "grow is '0.9'; it must be a number"),
        ({"floor": 2}, "floor is 2; it must be from 0 to 1"),
        ({"grow": 0.5}, "each must be above the last"),
        ({"shrink": 0.5}, "each must be above the last"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], words: str) -> None:
    """The administrator reads which one and why."""
    with pytest.raises(ValueError, match=words):
        Elastic(**settings)  # type: ignore[arg-type]


# --- from the books of a share ----------------------------------------------------------------------------------------


def an_account(used: int, throttled: int) -> TimeAccount:
    opened = Ledger(250, Timing(), 0).account(0)
    return replace(opened, guaranteed=used, borrowed=used, idle=used, overrun=used, switching=used, throttled=throttled)


def test_period_use_is_the_difference_of_two_accounts() -> None:
    """All that it used counts, out of every account; and whether it waited with nothing left."""
    before = an_account(1_000, 70)
    assert PeriodUse.between(250, before, an_account(5_000, 70), 100_000) == PeriodUse(250, 200)
    assert PeriodUse.between(250, before, an_account(1_000, 71), 100_000) == PeriodUse(250, 0, short=True)
    assert PeriodUse.between(250, None, before, 100_000) == PeriodUse(250, 50, short=True)


def test_accounts_that_began_anew() -> None:
    """A share that came again under its name has used less than before: that is nothing, and no error."""
    assert PeriodUse.between(250, an_account(6_000, 70), an_account(0, 0), 100_000) == PeriodUse(250, 0)
    assert PeriodUse.between(250, None, an_account(0, 0), 0) == PeriodUse(250, 0)


# --- whatever happens -------------------------------------------------------------------------------------------------

NAMES = "abcdef"


@st.composite
def settings(draw: st.DrawFn) -> Elastic:
    """Any that work."""
    parts = draw(st.lists(st.integers(1, 100), min_size=3, max_size=3, unique=True).map(sorted))
    return Elastic(
        shrink=parts[0] / 100, give=parts[1] / 100, grow=parts[2] / 100, step=draw(st.integers(1, 1000)),
        floor=draw(st.integers(0, 100)) / 100, patience=draw(st.integers(1, 5)), fade=draw(st.integers(1, 40)),
        smooth=draw(st.integers(1, 10)),
    )  # fmt: skip


@st.composite
def allocations(draw: st.DrawFn) -> dict[str, int]:
    """One to six shares of a GPU."""
    cuts = sorted(draw(st.sets(st.integers(1, MILLI_PER_GPU), min_size=1, max_size=6)))
    amounts = [after - before for before, after in zip([0, *cuts], cuts, strict=False)]
    return dict(zip(NAMES, amounts, strict=False))


def demands(most: int = MILLI_PER_GPU) -> st.SearchStrategy[list[int]]:
    """One number for each share; many of them want all or nothing."""
    one = st.one_of(st.just(0), st.just(most), st.integers(0, most))
    return st.lists(one, min_size=len(NAMES), max_size=len(NAMES))


@given(settings(), st.lists(st.tuples(allocations(), demands(2 * MILLI_PER_GPU), demands(1)), max_size=25))
def test_rules_of_every_pass(rules: Elastic, story: list[tuple[dict[str, int], list[int], list[int]]]) -> None:
    """They hold whatever is used, and whichever shares come, go and are resized."""
    states: Standings = {}
    for allocated, used, short in story:
        seen = {n: PeriodUse(a, u, bool(s)) for (n, a), u, s in zip(allocated.items(), used, short, strict=False)}
        outcome = adjust(states, seen, rules)
        check(states, seen, outcome, rules)
        states = outcome.states


def check(before: Standings, seen: Mapping[str, PeriodUse], outcome: Adjustment, rules: Elastic) -> None:
    """Check what must hold after each pass."""
    after = outcome.effective
    assert sum(after.values()) <= MILLI_PER_GPU
    assert set(after) == set(seen)
    for name, one in seen.items():
        assert outcome.states[name].allocated == one.allocated
        assert max(1, ceil(rules.floor * one.allocated)) <= after[name] <= MILLI_PER_GPU
        was = before.get(name)
        known = was is not None and was.allocated == one.allocated
        had = was.effective if was is not None and known else one.allocated
        if not known or one.short or one.used >= rules.grow * had:  # it has demand
            assert after[name] >= min(had, one.allocated)
            assert after[name] >= one.allocated or not known or had > one.allocated or after[name] == had, name
            assert not (had < one.allocated) or after[name] == one.allocated
        if after[name] != had:
            change = outcome.changes[name]
            assert change.after == after[name]
            assert change.reason
            assert not any(f" {other} " in f" {change.reason} " for other in seen)
        if after[name] > had:
            assert after[name] == one.allocated or after[name] - had <= rules.step


@given(settings(), allocations(), st.lists(st.tuples(st.booleans(), st.integers(1, MILLI_PER_GPU)), max_size=6))
def test_shares_begin_where_an_earlier_server_left_them(
    rules: Elastic, allocated: dict[str, int], written: list[tuple[bool, int]]
) -> None:
    """There is never more than the GPU, and no share is below its least; what fits is taken as it was."""
    left = {
        name: PreviousState(amount if same else amount % MILLI_PER_GPU + 1, effective, "Because.")
        for (name, amount), (same, effective) in zip(allocated.items(), written, strict=False)
    }
    after = resume(allocated, left, rules)
    least = {name: max(1, ceil(rules.floor * amount)) for name, amount in allocated.items()}
    same = {name: one for name, one in left.items() if one.allocated == allocated[name]}
    wanted = {name: max(same[name].effective, least[name]) if name in same else allocated[name] for name in allocated}
    assert {name: one.allocated for name, one in after.items()} == allocated
    assert sum(one.effective for one in after.values()) <= MILLI_PER_GPU
    for name, one in after.items():
        assert one.effective >= min(wanted[name], allocated[name])
        assert one.effective <= wanted[name]
        assert one.reason == ("Because." if name in same else "")
        if sum(wanted.values()) <= MILLI_PER_GPU:
            assert one.effective == wanted[name]


@pytest.mark.uncounted
@given(settings(), allocations(), demands(), st.booleans(), st.lists(demands(), max_size=3))
def test_nothing_oscillates(
    rules: Elastic, allocated: dict[str, int], wanted: list[int], idle: bool, earlier: list[list[int]]
) -> None:
    """While all use what they used, there is a last change: after it not even what is remembered changes."""
    states: Standings = {name: ElasticState.first(amount) for name, amount in allocated.items()}
    for each in earlier:
        states = steady(states, dict(zip(NAMES, each, strict=True)), 7, rules, idle=idle).states
    demand = dict(zip(NAMES, wanted, strict=True))
    for _ in range(40):
        after = steady(states, demand, 100, rules, idle=idle).states
        if after == states and steady(after, demand, 1, rules, idle=idle).states == after:
            break
        states = after
    else:
        raise AssertionError(f"it still changes: {states}")
    for name, one in states.items():
        assert one.effective >= one.allocated or demand[name] <= one.effective, "it does not have its own"


@pytest.mark.uncounted
@given(allocations(), demands())
def test_unused_milli_reach_shares_with_demand(allocated: dict[str, int], wanted: list[int]) -> None:
    """In the end no share is short of time while others have twice what they use, or while something is free."""
    states = {name: ElasticState.first(amount) for name, amount in allocated.items()}
    demand = dict(zip(NAMES, wanted, strict=True))
    outcome = steady(states, demand, 600)
    if any(demand[name] > amount for name, amount in outcome.effective.items()):
        assert sum(outcome.effective.values()) == MILLI_PER_GPU
        for name, one in outcome.states.items():
            keeps = max(2 * demand[name], ceil(RULES.floor * one.allocated))
            assert demand[name] >= RULES.give * one.effective or one.effective <= keeps


@pytest.mark.uncounted
@given(st.integers(1, 16), st.integers(50, 400), st.integers(0, 15))
def test_bursts_with_pauses_do_not_make_it_give_and_take(every: int, burst: int, phase: int) -> None:
    """One share wants the GPU every 1.6 s at least, beside one that always wants it: nothing moves in the end."""
    states: Standings = {"hog": ElasticState.first(500), "bursts": ElasticState.first(500)}
    found = set()
    for number in range(600):
        demand = {"hog": 1000, "bursts": burst if (number + phase) % every == 0 else 0}
        outcome = adjust(states, served(states, demand), RULES)
        states = outcome.states
        if number > 300:
            found.add(outcome.effective["bursts"])
    assert len(found) == 1


def test_use_is_relative_to_the_effective_milli() -> None:
    """It is above 1 for a share that also used time of others."""
    assert ElasticState(200, 400, 400, mean=300).use == 0.75
    assert ElasticState(200, 100, 200, mean=150).use == 1.5
