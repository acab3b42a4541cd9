"""Which nodes changed since when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from jupyter_gpu_scheduler.rules.state.changes import Changes
from tests.builders import cluster, facts, pod

STEPS = some.lists(some.tuples(some.sampled_from(["put", "remove"]), some.sampled_from("abcdef")), max_size=40)


@given(STEPS, some.integers(0, 40), some.integers(0, 4))
def test_changes_since_any_time_are_known_or_said_to_be_unknown(
    steps: list[tuple[str, str]], when: int, memory: int
) -> None:
    """Exactly the nodes of the later steps are named; unknown only if a removed node was forgotten meanwhile."""
    changes, numbers = Changes(memory), [0]
    for step, node in steps:
        (changes.put if step == "put" else changes.remove)(node)
        numbers.append(changes.last)
    assert numbers == sorted(set(numbers))
    when = min(when, len(steps))
    found = changes.since(numbers[when])
    if found is None:
        assert "remove" in {step for step, _ in steps[when:]}
        assert len({node for step, node in steps if step == "remove"}) > memory
    else:
        assert found == {node for _, node in steps[when:]}


def test_removed_nodes_are_forgotten_in_the_end() -> None:
    """The oldest removals are dropped; who asks from before them learns that it is not known."""
    changes = Changes(memory=2)
    for node in "abc":
        changes.put(node)
    before = changes.last
    for node in "abc":
        changes.remove(node)
    assert changes.since(before) is None
    assert changes.since(before + 1) == {"b", "c"}
    assert changes.since(changes.last) == set()
    assert changes.version("a") == 0


def test_snapshot_says_which_nodes_changed() -> None:
    """Nodes, their pods and their removal count; what changes nothing does not."""
    snapshot = cluster({"a": 2, "b": 2, "c": 2})
    start = snapshot.changes.last
    snapshot.put_pod(pod("x", wants=1, node="b"))
    snapshot.remove_node("c")
    assert (snapshot.changes.since(start) or set()) - {""} == {"b", "c"}  # "": pods in no line
    start = snapshot.changes.last
    snapshot.put_node("a", snapshot.gpus("a") or (), facts())
    assert snapshot.changes.since(start) == set()
    snapshot.remove_pod("x")
    assert (snapshot.changes.since(start) or set()) - {""} == {"b"}
