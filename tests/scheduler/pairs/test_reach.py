"""GPUs of other nodes that a notebook could ever have: those of the largest nodes that its workers could be on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from jupyter_gpu.model.gpu_kind import GpuKind, gpu_kind
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu_scheduler.rules.pairs.reach import MAX_KINDS, Reach
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.taints import Taint, Toleration, tolerated
from tests.builders import GIB, cluster, facts, inventory, pod

TAINTED = facts(taints=frozenset({Taint("gpu", "", "NoSchedule")}))
TOLERATION = frozenset({Toleration("gpu", None)})


def test_largest_other_nodes_count() -> None:
    """As many as it may have workers, without its own, and without those whose taints it does not tolerate."""
    snapshot = cluster({"n1": 8, "n2": 4, "n3": 2, "n4": 1, "n5": 0}, about={"n2": TAINTED})
    reach = Reach(snapshot, 2)
    assert reach.elsewhere(pod("a", node="n1")) == 0, "nothing was read yet"
    assert reach.update()
    assert reach.elsewhere(pod("a", node="n1")) == 3000
    assert reach.elsewhere(replace(pod("a", node="n1"), tolerations=TOLERATION)) == 6000
    assert reach.elsewhere(pod("a", node="n3")) == 9000
    assert not reach.update()
    snapshot.put_pod(pod("b", 1, node="n2"))
    assert not reach.update(), "only GPUs and taints count"
    snapshot.put_node("n5", inventory(1), facts())
    assert not reach.update(), "a small one changes no answer"
    snapshot.put_node("n5", inventory(3), facts())
    assert reach.update()
    assert reach.elsewhere(pod("a", node="n1")) == 5000
    huge = Reach(cluster({"n1": 1, **{f"m{number}": MAX_MILLI // 8000 + 1 for number in range(8)}}), 8)
    huge.update()
    assert huge.elsewhere(pod("a", node="n1")) == MAX_MILLI


def test_kinds_are_those_of_other_nodes() -> None:
    """A kind that its own node alone has is none of them; of very many the first are named."""
    a100, l4 = inventory(1, models=["A100"], memory=[40]), inventory(2, models=["L4"], memory=[24])
    snapshot = cluster({"n1": a100, "n2": l4, "n3": (*l4, *a100)}, about={"n3": TAINTED})
    reach = Reach(snapshot, 1)
    assert reach.kinds(pod("a", node="n1")) == ()
    assert reach.update()
    big, small = GpuKind("A100", 40 * GIB), GpuKind("L4", 24 * GIB)
    assert reach.kinds(pod("a", node="n1")) == (small,)
    assert reach.kinds(replace(pod("a", node="n1"), tolerations=TOLERATION)) == (big, small)
    assert reach.kinds(replace(pod("a", node="n3"), tolerations=TOLERATION)) == (big, small)
    snapshot.put_node("n2", (*l4, replace(l4[0], index=2, uuid="GPU-gate", gate=True)), facts())
    assert reach.update(), "the number of GPUs of the largest node, and a kind"
    assert reach.kinds(pod("a", node="n1")) == (small, small._replace(gate=True))
    many = Reach(cluster({"n1": 0, "n2": inventory(40, models=[f"M{number}" for number in range(40)])}), 1)
    many.update()
    assert [kind.model for kind in many.kinds(pod("a", node="n1"))] == sorted(f"M{n}" for n in range(40))[:MAX_KINDS]


MODELS = some.sampled_from([["A100"], ["L4"], ["A100", "L4"]])


@given(
    some.lists(
        some.tuples(
            some.sampled_from("abcde"), some.none() | some.tuples(some.integers(0, 3), some.booleans(), MODELS)
        ),
        max_size=12,
    ),
    some.integers(1, 3),
)
def test_answers_after_changes_are_those_of_brute_force(steps: Sequence[Any], most: int) -> None:
    """Also where it is not told that anything changed."""
    snapshot = ClusterSnapshot()
    reach = Reach(snapshot, most)
    for name, what in steps:
        before = {node: (reach.elsewhere(me), reach.kinds(me)) for node in "abcde" if (me := pod("a", node=node))}
        if what is None:
            snapshot.remove_node(name)
        else:
            snapshot.put_node(name, inventory(what[0], models=what[2]), TAINTED if what[1] else facts())
        changed = reach.update()
        for node in "abcde":
            for tolerations in (frozenset[Toleration](), TOLERATION):
                me = replace(pod("a", node=node), tolerations=tolerations)
                others = [name for name in snapshot.nodes() if name != node]
                able = [name for name in others if tolerated(snapshot.facts(name).taints, tolerations)]
                counts = sorted((len(snapshot.gpus(name) or ()) for name in able), reverse=True)
                assert reach.elsewhere(me) == 1000 * sum(counts[:most])
                there = {gpu_kind(gpu) for name in able for gpu in snapshot.gpus(name) or ()}
                assert reach.kinds(me) == tuple(sorted(there))
            me = pod("a", node=node)
            assert changed or before[node] == (reach.elsewhere(me), reach.kinds(me))
