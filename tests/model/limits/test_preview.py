"""Previews of changed limits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from datetime import UTC, date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.preview import Preview, preview
from jupyter_gpu.model.limits.source import LimitPart
from jupyter_gpu.model.limits.times import HOUR, Budget, BudgetWindow, Hours

from .strategies import limit_sets, owners

NOON = 1777896000.0  # 2026-05-04, 12:00 UTC, a Monday
ML = Subject(SubjectKind.GROUP, "ml")
DEFAULT = Subject(SubjectKind.DEFAULT)


def ann(used: int = 0, waiting: int = 0, name: str = "ann", **more: Any) -> Account:
    return Account(Owner("User", name, "jhub"), used=used, waiting=waiting, **more)


def everyone(most: int, **values: Any) -> Limit:
    return Limit(DEFAULT, max=most, object_name="default", **values)


def seen(before: list[Limit], after: list[Limit], *accounts: Account, **models: Mapping[str, int]) -> Preview:
    """The preview at noon; ``models``: what users hold, by name."""
    held = {Owner("User", name, "jhub"): amounts for name, amounts in models.items()}
    return preview(before, after, accounts, NOON, UTC, models=held)


@pytest.mark.parametrize(
    ("accounts", "grace", "sentence"),
    [
        ([ann(1000)], 600, "No one loses GPUs."),
        ([ann(2000)], 600, "1 user will lose 1 GPU in 10 minutes."),
        ([ann(3000), ann(2000, name="bob"), ann(3000, name="eve")], 600, "3 users will lose 5 GPUs in 10 minutes."),
        ([ann(1500)], 0, "1 user will lose 0.5 GPU at once."),
        ([ann(2000)], 5400, "1 user will lose 1 GPU in 1 hour 30 minutes."),
        ([ann(2000)], 90, "1 user will lose 1 GPU in 1 minute 30 seconds."),
        (
            [ann(2000), Account(Owner("Namespace", "jobs"), used=4000)],
            600,
            "1 user and 1 namespace will lose 4 GPUs in 10 minutes.",
        ),
        ([Account(Owner("Namespace", "jobs"), used=4000)], 600, "1 namespace will lose 3 GPUs in 10 minutes."),
    ],
)
def test_preview_says_who_loses_what(accounts: list[Account], grace: int, sentence: str) -> None:
    """A lowered default is described in one sentence."""
    found = seen([everyone(8000)], [everyone(1000, grace=grace)], *accounts)
    assert found.sentence() == sentence


def test_preview_of_different_graces() -> None:
    """The sentence has the first and the last moment if the owners' graces differ."""
    group = Limit(ML, members=frozenset({"bob"}), grace=3600, object_name="ml")
    found = seen([everyone(8000), group], [everyone(1000), group], ann(2000), ann(2000, name="bob"))
    assert found.sentence() == "2 users will lose 2 GPUs, the first in 10 minutes, the last in 1 hour."


def test_preview_names_those_who_lose_most_first() -> None:
    """The rows say for each owner what it has, may have, and why."""
    found = seen([everyone(8000)], [everyone(1000)], ann(2000), ann(4000, name="bob"))
    assert [effect.owner.name for effect in found.losers] == ["bob", "ann"]
    assert json.loads(json.dumps(found.to_json()))["losers"][1] == {
        "owner": {"kind": "User", "name": "ann", "hub": "jhub"},
        "used": "2",
        "before": {"value": "8", "source": {"kind": "Default", "object": "default"}},
        "after": {"value": "1", "source": {"kind": "Default", "object": "default"}},
        "over": "1",
        "lost": "1",
        "gained": "0",
        "grace": "10m",
    }


def test_preview_counts_what_the_change_causes() -> None:
    """GPUs that an owner already has above the limit are not lost by this change."""
    (effect,) = seen([everyone(3000)], [everyone(2000)], ann(4000)).losers
    assert (effect.over, effect.lost) == (2000, 1000)
    assert seen([everyone(2000)], [everyone(2000)], ann(4000)).losers == ()


def test_preview_says_who_gains() -> None:
    """Those who wait and could get more are counted, up to what they wait for."""
    found = seen([everyone(1000)], [everyone(3000)], ann(1000, 9000), ann(1000, 1000, name="bob"), ann(name="eve"))
    assert found.sentence() == "No one loses GPUs. 2 users who wait can get 3 GPUs more when they are free."
    assert [effect.gained for effect in found.winners] == [2000, 1000]
    free = seen([everyone(1000)], [], ann(1000, 9000))
    assert free.sentence() == "No one loses GPUs. 1 user who waits can get 9 GPUs more when they are free."


def test_preview_warns_of_too_many_guarantees() -> None:
    """Guarantees above the total are reported, if the total is known."""
    found = seen([], [everyone(4000, guaranteed=2000)], ann(), ann(name="bob"))
    assert found.sentence(4000) == found.sentence() == "No one loses GPUs."
    assert found.sentence(3000) == (
        "No one loses GPUs. All guarantees together are 4 GPUs, more than the 3 GPUs that there are: they cannot all "
        "be kept."
    )


def test_preview_is_of_this_moment() -> None:
    """Hours and budgets count as they are now."""
    night, day = Hours(0, start=22 * 60, end=6 * 60), Hours(1000, start=6 * 60, end=22 * 60)
    assert seen([], [everyone(4000, hours=(night,))], ann(2000)).losers == ()
    assert seen([], [everyone(4000, hours=(day,))], ann(2000)).losers[0].after.source.part is LimitPart.HOURS
    budget = everyone(4000, budget=Budget(HOUR, BudgetWindow.DAY), guaranteed=500)
    spent = ann(2000, hours={date(2026, 5, 4): HOUR})
    assert seen([], [budget], spent).losers[0].lost == 1500
    assert seen([], [budget], ann(2000)).losers == ()


MODELS = ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA H100"]
WORDS = ["A100", "A100 SXM4", "H100", "NVIDIA"]


@given(
    st.dictionaries(st.sampled_from(MODELS), st.integers(0, 3)),
    st.dictionaries(st.sampled_from(WORDS), st.integers(0, 3) | st.just(UNLIMITED)),
    st.integers(0, 6) | st.just(UNLIMITED),
)
@example({MODELS[0]: 2, MODELS[2]: 2}, {"NVIDIA": 3, "H100": 1}, UNLIMITED)
def test_preview_takes_back_the_least(held: dict[str, int], limits: dict[str, Any], most: Any) -> None:
    """Limits of models count together with the maximum, and no more is taken than all of them demand."""

    def fits(kept: Mapping[str, int]) -> bool:
        sums = {words: sum(n for model, n in kept.items() if words.split()[-1] in model) for words in limits}
        return all(limit is UNLIMITED or sums[words] <= limit for words, limit in limits.items()) and (
            most is UNLIMITED or sum(kept.values()) <= most
        )

    choices = itertools.product(*(range(n + 1) for n in held.values()))
    kept = max(sum(choice) for choice in choices if fits(dict(zip(held, choice, strict=True))))
    used = sum(held.values())
    limit = Limit(DEFAULT, max=most, models=limits)
    (effect,) = seen([], [limit], ann(used), ann=held).losers or (None,)
    assert (effect.lost if effect else 0) == used - kept


@given(st.lists(owners, unique=True, max_size=3), limit_sets, limit_sets, st.integers(0, 4000), st.integers(0, 4000))
def test_preview_of_no_change_is_empty(
    known: list[Owner], before: list[Limit], after: list[Limit], used: int, waiting: int
) -> None:
    """The same limits again change nothing; of others each owner loses or gains what the change causes, never both."""
    accounts = [Account(owner, used=used, waiting=waiting) for owner in known]
    same = preview(before, before, accounts, NOON, UTC)
    assert (same.losers, same.winners) == ((), ())
    found, back = (preview(*both, accounts, NOON, UTC) for both in ((before, after), (after, before)))
    assert not {effect.owner for effect in found.losers} & {effect.owner for effect in found.winners}
    assert all(0 < effect.lost <= effect.over <= used for effect in (*found.losers, *back.losers))
    assert found.sentence()
