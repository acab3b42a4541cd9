"""Streams of new pods without a cluster."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from benchmarks.lib.simulated_cluster import Job, SimulationResult, at_once, replay
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes, has_resources
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import best
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import cluster, facts, new


def test_pod_that_fits_nowhere_is_refused() -> None:
    """Two of three fit; what is left is of no use for a whole GPU."""
    snapshot = cluster({"a": 1, "b": 1})
    jobs = [Job(new("x", wants=0.75)), Job(new("y", wants=1)), Job(new("z", wants=1))]
    policy = Policy.from_settings({"workload": [{"share": 1, "gpus": 1}]})
    found = replay(snapshot, jobs, ["a", "b"], policy)
    assert found == SimulationResult(2000, (750, 1750, 2750), (750, 1750, 1750), 250.0, 1)
    assert found.part == 0.875


def test_ended_pods_make_room() -> None:
    """A job ends before the one comes whose number is given; so does one that was refused."""
    snapshot = cluster({"a": 1})
    jobs = [
        Job(new("x", wants=1), until=2),
        Job(new("refused", wants=1), until=2),
        Job(new("y", wants=1), until=3),
        Job(new("none")),
    ]
    found = replay(snapshot, jobs, ["a"], Policy())
    assert (found.arrived, found.allocated, found.refused) == ((1000, 2000, 1000, 0), (1000, 1000, 1000, 0), 1)


def test_cpu_is_counted() -> None:
    """CPU, memory and disk of a pod are used while it is there."""
    snapshot = cluster({"a": 4}, about={"a": facts(cpu=3)})
    jobs = [
        Job(new("x", wants=1, asks={"cpu": 2000}), until=2),
        Job(new("refused", wants=1, asks={"cpu": 2000})),
        Job(new("y", wants=1, asks={"cpu": 2000})),
    ]
    assert replay(snapshot, jobs, ["a"], Policy()).refused == 1
    assert snapshot.facts("a").used == {"cpu": 2000}


def test_pairs_serve_pods_from_another_node() -> None:
    """A worker holds the GPU where no CPU is left for the pod, which is on a node without GPUs; both end together."""
    about = {"gpus": facts(cpu=1), "cpu": facts(cpu=4)}
    jobs = [Job(new("x", wants=1, asks={"cpu": 2000}), until=1), Job(new("y", wants=1, asks={"cpu": 2000}))]
    alone = replay(cluster({"gpus": 1, "cpu": 0}, about=about), jobs, ["gpus", "cpu"], Policy())
    assert (alone.refused, alone.remote, alone.part) == (2, 0, 0.0)
    snapshot, pairs = cluster({"gpus": 1, "cpu": 0}, about=about), PairPolicy(worker={"cpu": 100})
    found = replay(snapshot, jobs, ["gpus", "cpu"], Policy(), pairs)
    assert (found.refused, found.remote, found.part) == (0, 2, 1.0)
    assert {pod.uid: pod.node for name in ("gpus", "cpu") for pod in snapshot.pods(name)} == {
        "y": "cpu",
        "y-worker": "gpus",
    }
    assert [snapshot.facts(name).used["cpu"] for name in ("gpus", "cpu")] == [100, 2000]


def test_pairs_prefer_one_node() -> None:
    """A pod that its node can serve has no worker, and one that wants no GPU is placed as ever."""
    jobs = [Job(new("x", wants=1, asks={"cpu": 1000})), Job(new("y"))]
    about = {name: facts(cpu=8) for name in "ab"}
    found = replay(cluster({"a": 2, "b": 2}, about=about), jobs, ["a", "b"], Policy(), PairPolicy())
    assert (found.refused, found.remote) == (0, 0)


@pytest.mark.parametrize("pairs", [None, PairPolicy(worker={"cpu": 500})])
def test_only_changed_nodes_are_rated_again(pairs: PairPolicy | None) -> None:
    """Each pod goes where it would go if all nodes were rated for it."""
    gpus = {"a": 4, "b": 4, "c": 4, "d": 2, "e": 4, "f": 0}
    cpu = {"a": 9, "b": 9, "c": 4, "d": 4, "e": 2, "f": 9}
    snapshot = cluster(gpus, about={name: facts(cpu=cores) for name, cores in cpu.items()})
    names, policy, chance, places = list(gpus), pairs.policy if pairs else Policy(), random.Random(1), set()

    def jobs() -> Iterator[Job]:
        for number in range(150):
            pod = new(str(number), wants=chance.choice((0, 0.5, 1, 2)), asks={"cpu": chance.choice((100, 1000, 2000))})
            expected = _place(snapshot, pod, names, policy, pairs)
            yield Job(pod)
            found = [snapshot.pod(uid) for uid in (f"{number}-worker", str(number))]
            nodes = [pod.node for pod in found if pod]
            assert nodes == expected
            places.add(tuple(expected))
            if chance.random() < 0.4 and (leaving := snapshot.pod(str(chance.randrange(number + 1)))):
                snapshot.remove_pod(leaving.uid)
                snapshot.remove_pod(f"{leaving.uid}-worker")

    replay(snapshot, jobs(), names, policy, pairs)
    assert () in places
    assert len(places) > 5
    assert any(len(place) == 2 for place in places) == bool(pairs)


def _place(
    snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy, pairs: PairPolicy | None
) -> list[str]:
    """Return the nodes of a pod's GPUs and of the pod, one if they are the same, none if no node has room for it."""
    if pairs and pod.wish and pod.wish.milli:
        pair = PairChooser(snapshot, pairs).for_new(pod, names)
        return list(dict.fromkeys((pair.gpu_node, pair.pod_node))) if pair else []
    able = [name for name in names if has_resources(pod, snapshot.facts(name))]
    node = best(snapshot, pod, filter_nodes(snapshot, pod, able).fitting, policy)
    return [node] if node else []


def test_part_is_told_for_any_amount_that_was_wished() -> None:
    """It is that of the first moment when so much had been wished; at the end, if it never was."""
    found = SimulationResult(2000, (500, 1500, 2500, 3000), (500, 1500, 1500, 2000), 0.0, 1)
    assert [found.part_when(wished) for wished in (0.25, 0.7, 1.0, 1.5, 9.0)] == [0.25, 0.75, 0.75, 1.0, 1.0]


def test_no_jobs_give_no_figures() -> None:
    """Without a job or a node no figure is invented."""
    assert replay(cluster({}), [], [], Policy()) == SimulationResult(0, (), (), 0.0, 0)
    assert replay(cluster({}), [], [], Policy()).part == 0


@pytest.mark.parametrize(("name", "nodes"), [("pack", {"a"}), ("spread", {"a", "b"})])
def test_policies_differ(name: str, nodes: set[str]) -> None:
    """Two pods go to one node, or to two, by the policy."""
    snapshot = cluster({"a": 2, "b": 2})
    replay(snapshot, [Job(new("x", wants=1)), Job(new("y", wants=1))], ["a", "b"], Policy.from_settings({"name": name}))
    assert {state.node for uid in "xy" if (state := snapshot.pod(uid))} == nodes


def test_later_wishes_are_counted() -> None:
    """A pod that started nowhere has nothing, one that is served at once counts, and one that waits takes nothing."""
    snapshot = cluster({"a": 2, "b": 1}, about={"a": facts(2), "b": facts(1)})
    pods = [new("x"), new("y"), new("z"), new("fourth")]
    wishes = [Wish(2000), Wish(1000), Wish(1000), Wish(1000)]
    assert at_once(snapshot, pods, wishes, ["a", "b"], Policy()) == 2
    where = {uid: state.node for uid in "xyz" if (state := snapshot.pod(uid))}
    assert sorted(where.values()) == ["a", "a", "b"]
