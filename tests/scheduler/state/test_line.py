"""Pods in line: always in order, whatever comes and goes; and the same in the snapshot's indexes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.state.line import Line
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import new, pod

uids = st.sampled_from("abcdef")
steps = st.tuples(
    uids,
    st.sampled_from(["wait", "wait", "run", "gone", "go"]),
    st.sampled_from(["", "n", "m"]),
    st.none() | st.integers(1, 5),
    st.sampled_from([Wish(1000), Wish(1000, priority=2), Wish(500)]),
)


@given(st.lists(steps, max_size=30))
def test_indexes_agree_with_a_scan_of_all_pods(steps: list[tuple[str, str, str, int | None, Wish]]) -> None:
    """Indexes are sorted by rank, by node and by kind; pods that went leave nothing behind."""
    snapshot = ClusterSnapshot()
    for uid, what, on, ticket, wish in steps:
        if what == "go":
            snapshot.remove_pod(uid)
        elif what == "run":
            snapshot.put_pod(replace(pod(uid, wants=wish, ticket=ticket), node="n"))
        else:
            snapshot.put_pod(new(uid, wants=wish, ticket=ticket, on=on, gone=what == "gone"))
        there = [state for uid in "abcdef" if (state := snapshot.pod(uid)) and state.pending]
        line = sorted(there, key=lambda state: state.rank)
        assert list(snapshot.pending()) == line
        for name in ("n", "m"):
            assert list(snapshot.nominated(name)) == [state for state in line if state.nominated == name]
        waiting = [state for state in line if state.ticket is not None and not state.gone]
        for node in (None, "", "n", "m"):
            some = [state for state in waiting if node is None or state.nominated == node]
            found = {kind: list(ranks) for kind, ranks in snapshot.kinds(node).items()}
            kinds = {state.kind for state in some}
            assert found == {kind: [state.uid for state in some if state.kind == kind] for kind in kinds}


def test_next_rank() -> None:
    """The next rank is the first, the one behind a rank that need not be there any more, or none behind the last."""
    line = Line()
    ranks = [replace(new(uid), created=float(number)).rank for number, uid in enumerate("abc")]
    for rank in reversed(ranks):
        line.add(rank)
    assert (line.after(None), line.after(ranks[0]), line.after(ranks[2])) == (ranks[0], ranks[1], None)
    line.remove(ranks[1])
    assert line.after(ranks[1]) == ranks[2]
    assert (list(line), len(line)) == (["a", "c"], 2)


def test_version_of_a_node_changes_with_each_change() -> None:
    """A change of its pods, its line or the node itself changes it; the versions of other nodes stay."""
    snapshot = ClusterSnapshot()
    changes: list[Callable[[], None]] = [
        lambda: snapshot.put_node("n", ()),
        lambda: snapshot.put_pod(pod("a", wants=1, node="n")),
        lambda: snapshot.put_pod(new("b", wants=1, ticket=1, on="n")),
        lambda: snapshot.remove_pod("b"),
        lambda: snapshot.remove_node("n"),
        lambda: snapshot.put_node("n", ()),
    ]
    versions = [snapshot.version("n")]
    for change in changes:
        change()
        versions.append(snapshot.version("n"))
    before = snapshot.version("n")
    snapshot.put_pod(pod("c", wants=1, node="m"))
    assert snapshot.version("n") == before
    assert all(one != other for one, other in itertools.pairwise(versions))
