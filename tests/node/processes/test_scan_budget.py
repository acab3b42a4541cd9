"""The amount that a scan reads of each pod, and the time of the next search of a larger pod: rules."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.processes.rules.scan_budget import (
    LEAST_REST,
    MOST_REST,
    Budgets,
    OverBudget,
    ScanBudget,
    Search,
    denied_since,
)

costs = st.lists(st.integers(0, 50) | st.just(0.125))
moments = st.floats(0, 1000)
uuids = st.frozensets(st.sampled_from("abcd"))


@given(st.integers(0, 200), costs)
def test_spent_budget_allows_no_more(most: int, wanted: list[float]) -> None:
    """Once it was not enough nothing more is read, however little."""
    budget, read, refused = ScanBudget(most), 0.0, False
    for cost in wanted:
        try:
            budget.spend(cost)
            assert not refused
            read += cost
        except OverBudget:
            refused = True
    assert read <= most
    assert budget.over == refused == (sum(wanted) > most)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50))))
def test_budgets_of_pods_are_independent(spent: list[tuple[str, int]]) -> None:
    """The rest of a budget depends only on what was read of that pod."""
    budgets = Budgets(100)
    for pod, cost in spent:
        budget = budgets.of(pod)
        if not budget.over:
            try:
                budget.spend(cost)
            except OverBudget:
                continue
    for pod, budget in budgets.by_pod.items():
        assert budget.over == (sum(cost for name, cost in spent if name == pod) > 100)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=20))
def test_pod_is_searched_for_half_of_the_time_at_most(lengths: list[int]) -> None:
    """Up to the longest rest; and a short search is not repeated without a pause."""
    now, busy = 0.0, 0.0
    for length in lengths:
        search = Search(now, now + length, frozenset())
        busy += length
        assert search.next - search.ended >= LEAST_REST
        assert search.next - search.ended <= MOST_REST
        now = search.next
    assert busy <= now / 2 + sum(max(0, length - MOST_REST) for length in lengths)


@given(moments, moments, uuids, uuids, moments)
def test_only_a_search_that_began_later_proves_anything(
    began: float, length: float, searched: frozenset[str], wanted: frozenset[str], since: float
) -> None:
    """And only about the GPUs that it searched for."""
    assert Search(began, began + length, searched).proves(wanted, since) == (began >= since and wanted <= searched)


@given(st.lists(uuids, max_size=8))
def test_denied_time_begins_anew_after_a_grant(steps: list[frozenset[str]]) -> None:
    """Since when something is denied is when it was denied last: what a scan saw before counts for nothing."""
    missing: dict[str, float] = {}
    for now, denied in enumerate(steps):
        missing = denied_since(missing, denied, float(now))
        assert missing.keys() == denied
        for uuid, since in missing.items():
            run = 0
            while now - run >= 0 and uuid in steps[now - run]:
                run += 1
            assert since == now - run + 1
