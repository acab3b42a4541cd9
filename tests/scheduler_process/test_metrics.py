"""The metrics of each node's GPUs, as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import cluster, inventory, pod
from tests.scheduler_process.notebook_stage import Cluster


def gpus_by_state(metrics: SchedulerMetrics) -> dict[tuple[str, str], float]:
    """GPUs by node and state, as Prometheus understands the text."""
    (found,) = (
        family
        for family in text_string_to_metric_families(metrics.text().decode())
        if family.name == "jupyter_gpu_scheduler_gpus"
    )
    assert found.type == "gauge"
    return {(sample.labels["node"], sample.labels["state"]): sample.value for sample in found.samples}


def test_gpus_are_counted_by_node_and_state() -> None:
    """Parts of GPUs count; free parts of a broken GPU are not free. A changed node is counted anew, and a removed one
    is gone.
    """
    snapshot = cluster({"a": inventory(2, unhealthy=[1]), "b": 1}, [pod("p", wants=0.5, has={0: 500}, node="a")])
    metrics = SchedulerMetrics(snapshot)
    before = gpus_by_state(metrics)
    assert [before["a", state] for state in ("free", "held", "unhealthy")] == [0.5, 0.5, 1]
    assert before["b", "free"] == 1
    snapshot.remove_pod("p")
    assert gpus_by_state(metrics) == {**before, ("a", "free"): 1, ("a", "held"): 0}
    snapshot.remove_node("b")
    assert not [node for node, _ in gpus_by_state(metrics) if node == "b"]


def test_gpus_of_other_nodes_are_counted() -> None:
    """Parts, what workers have of them and not yet, and notebooks that wait: as they are when they are read."""
    world = Cluster()
    metrics = SchedulerMetrics(world.cache.snapshot)
    metrics.follow_notebooks(world.cache.notebooks.figures)

    def found() -> list[float | None]:
        names = ("remote_parts", "remote_gpus", "remote_gpus", "waiting_notebooks")
        labels: list[dict[str, str]] = [{}, {"state": "allocated"}, {"state": "owed"}, {}]
        value = metrics.registry.get_sample_value
        return [value(f"jupyter_gpu_scheduler_{name}", each) for name, each in zip(names, labels, strict=True)]

    assert found() == [0, 0, 0, 0]
    world.notebook("a", 4)
    world.reconcile()
    assert found() == [2, 0, 3, 0]
    world.settle()
    assert found() == [2, 3, 0, 0]
    world.notebook("b", 1)
    world.settle()
    assert found() == [2, 3, 0, 1]
    world.notebook("a", 2)
    world.settle()
    assert found() == [2, 2, 0, 0], "a worker that has given all back counts no more"


def test_odd_names_break_nothing() -> None:
    """A node's name is escaped, so that any text could be parsed."""
    snapshot = ClusterSnapshot()
    snapshot.put_node('a"b\\c\nd', inventory(1))
    assert gpus_by_state(SchedulerMetrics(snapshot))['a"b\\c\nd', "free"] == 1


def test_library_metrics_are_there() -> None:
    """The text has the metrics of the library, too."""
    metrics = SchedulerMetrics(ClusterSnapshot())
    metrics.leading.set(1)
    assert b"jupyter_gpu_scheduler_leading 1.0\n" in metrics.text()
    assert gpus_by_state(metrics) == {}
