"""The sums of what pods take of each node, and the nodes that are withheld: as the pods say now, not as they said."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_scheduler.node_use import NodeUse
from jupyter_gpu_scheduler.rules.state.records import PodUsage

PODS, NODES = ("a", "b", "c"), ("n1", "n2")
usages = st.none() | st.builds(
    PodUsage, st.sampled_from(NODES), st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(0, 9))
)
changes = st.tuples(st.sampled_from(PODS), usages)
withheld = st.tuples(st.sampled_from(PODS), st.sampled_from(("", *NODES)))


@given(st.lists(changes))
def test_use_is_the_sum_of_the_pods(said: list[tuple[str, PodUsage | None]]) -> None:
    """Each change tells every node of which the sum changed; in the end the sums are those of the last words."""
    use = NodeUse()
    known: dict[str, dict[str, int]] = {node: {} for node in NODES}
    for uid, usage in said:
        told = use.count(uid, usage)
        known |= {node: dict(use.used(node)) for node in told}
        assert known == {node: dict(use.used(node)) for node in NODES}
    for node in NODES:
        last = [usage.requests for usage in dict(said).values() if usage and usage.node == node]
        total = sum(map(Counter, last), Counter())
        assert use.used(node) == {name: amount for name, amount in total.items() if amount}


@given(st.lists(withheld))
def test_node_is_withheld_while_a_pod_on_it_cannot_be_read(said: list[tuple[str, str]]) -> None:
    """Each change tells every node that is withheld from now on, or no longer; a pod withholds the last it was on."""
    use, known = NodeUse(), dict.fromkeys(NODES, False)
    for uid, node in said:
        told = use.withhold(uid, node)
        known |= {name: use.is_withheld(name) for name in told}
        assert known == {name: use.is_withheld(name) for name in NODES}
    assert {name for name in NODES if known[name]} == {node for node in dict(said).values() if node}
