"""Conclusions from the states of a watch: rules, rest, and when a device may and must open."""

import math
from dataclasses import replace
from typing import Any

from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, REQUESTED, SERVICE, WORKER, encode
from jupyter_gpu.model.service import Service, WorkerIdentity, WorkerPart
from tests.builders import gpu, uuid
from tests.cluster.whole.judge import Interval
from tests.cluster.whole.states import (
    Asked,
    Moment,
    PodState,
    broken_rules,
    earliest,
    openings,
    pod_state,
    unsettled,
    with_parts,
    written,
)


def pod(name: str = "a", wants: str = "", has: str = "", opens: str = "", **metadata: Any) -> PodState:
    """Return a pod read from the API's JSON; ``has`` and ``opens`` are numbers of GPUs."""
    return pod_state(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "annotations": notes(wants, has, opens), **metadata},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        }
    )


def notes(wants: str, has: str, opens: str) -> dict[str, str]:
    """Annotations."""
    found = {REQUESTED: wants} if wants else {}
    for key, numbers in ((ALLOCATED, has), (ATTACHED, opens)):
        shares = ",".join(f'{{"uuid":"{uuid(int(number))}","milli":1000}}' for number in numbers)
        found[key] = f'{{"observedGeneration":0,"shares":[{shares}]}}'
    return found


def test_gpu_with_two_owners_breaks_the_rules() -> None:
    """A pod keeps a GPU from others while it is decided, attached or draining, until its processes have ended."""
    assert broken_rules([pod("a", "1", "0", "0"), pod("b", "1", "1")]) == []
    assert len(broken_rules([pod("a", "1", "0", "0"), pod("b", "1", "0")])) == 1
    assert len(broken_rules([pod("a", "0", "", "0"), pod("b", "1", "0")])) == 1
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert len(broken_rules([pod("a", "1", "0", "", **ending), pod("b", "1", "0")])) == 1
    assert len(broken_rules([pod("a", "1", "0", "0", **ending), pod("b", "1", "0")])) == 1


def test_notebook_wishes_what_its_workers_leave() -> None:
    """There is rest once each of them has its part; not while a part has no pod."""
    parts = [WorkerPart("w1", "n", 1000, uid="uid-w"), WorkerPart("w2", "n", 0)]
    noted = {**notes("2", "0", "0"), SERVICE: encode(Service(0, tuple(parts)))}
    notebook = pod("a", annotations=noted)
    worker = pod("w", annotations={**notes("", "1", "1"), WORKER: encode(WorkerIdentity("uid-a", "w1"))})
    gpus = {"n": (gpu(0), gpu(1), gpu(2))}
    assert unsettled([notebook, worker], gpus)
    assert unsettled(with_parts([notebook, worker, pod("b")]), gpus) == []
    assert unsettled(with_parts([notebook]), gpus)
    assert unsettled(with_parts([replace(notebook, annotations={}), worker]), gpus)


def test_rest_means_that_nothing_is_left_to_do() -> None:
    """There is no rest while a decision is not carried out, or while a pod lacks an idle GPU."""
    gpus = {"n": (gpu(0), gpu(1))}
    assert unsettled([pod("a", "1", "0", "0"), pod("b", "2", "1", "1")], gpus) == []
    assert len(unsettled([pod("a", "1", "0")], gpus)) == 1
    assert len(unsettled([pod("a", "0", "0", "0")], gpus)) == 1
    assert len(unsettled([pod("a", "2", "0", "0")], gpus)) == 1


def test_device_may_and_must_open_in_the_right_spans() -> None:
    """It may from the decision at the earliest to the record that it is closed, and must from record to decision."""
    states = (pod("a", "1"), pod("a", "1", "0"), pod("a", "1", "0", "0"), pod("a", "0", "", "0"), pod("a", "0"))
    moments = [Moment(n, "changed", 10.0 * n, 10.0 * n + 1, state) for n, state in enumerate(states)]
    found = openings(moments, [gpu(0)])
    assert found.may == {gpu(0).path: [Interval(10.0, 41.0)]}
    assert found.must == {gpu(0).path: [Interval(21.0, 30.0)]}


def test_gpu_taken_back_before_it_was_attached_may_open_until_the_next_record() -> None:
    """The decision alone closes nothing."""
    states = (pod("a", "2", "1", "1"), pod("a", "2", "10", "1"), pod("a", "0", "", "1"), pod("a", "0"), pod("a", "0"))
    moments = [Moment(n, "changed", 10.0 * n, 10.0 * n + 1, state) for n, state in enumerate(states)]
    assert openings(moments, [gpu(0)]).may[gpu(0).path] == [Interval(10.0, 31.0)]


def test_gpu_given_again_must_open_only_from_the_next_record() -> None:
    """The record before may be older than rules that closed it."""
    states = (pod("a", "1", "0", "0"), pod("a", "0", "", "0"), pod("a", "1", "0", "0"), pod("a", "1", "0", "0"))
    moments = [Moment(n, "changed", 10.0 * n, 10.0 * n + 1, state) for n, state in enumerate(states)]
    assert openings(moments, [gpu(0)]).must == {gpu(0).path: [Interval(1.0, 10.0)]}
    closed = Moment(4, "changed", 40.0, 41.0, pod("a", "1", "0"))
    again = Moment(5, "changed", 50.0, 51.0, pod("a", "1", "0", "0"))
    must = openings([*moments, closed, again], [gpu(0)]).must
    assert must == {gpu(0).path: [Interval(1.0, 10.0), Interval(51.0, math.inf)]}


def test_grant_is_not_older_than_its_wish() -> None:
    """Nor is it older than the state before it; of several writers of the same text the first possible one counts."""
    states = (
        pod("a", "0"),
        pod("a", "1"),
        pod("a", "1", "0"),
        pod("a", "0", "0"),
        pod("a", "1", "0"),
        pod("a", "2", "0"),
    )
    moments = [Moment(n, "changed", 10.0 * (n // 3), 10.0 * n + 5, state) for n, state in enumerate(states)]
    asked = [
        Asked(1.0, 2.0, "0"),  # before all: the pod was made with it
        Asked(12.0, 16.0, "1"),
        Asked(20.0, 21.0, "0"),
        Asked(13.0, math.inf, "1"),  # cut off: it may be what was written second
        Asked(44.0, 46.0, "1"),
        Asked(99.0, 99.5, "2"),  # too late to be what was heard
    ]
    assert earliest(moments, asked) == [0.0, 12.0, 12.0, 20.0, 20.0, 20.0]
    assert openings(moments, [gpu(0)], asked).may == {gpu(0).path: [Interval(12.0, math.inf)]}
    assert earliest(moments, [asked[1], asked[2], asked[4]]) == [0.0, 12.0, 12.0, 20.0, 44.0, 44.0]


def test_time_of_an_annotation_is_known_to_the_second() -> None:
    """The API has it to the second; without it, the annotation is not older than the pod."""
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{ALLOCATED}": {}}}}
    metadata: dict[str, Any] = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    created = written({"metadata": metadata}, ALLOCATED)
    metadata["managedFields"] = [{"time": "2026-01-01T00:00:07Z", "fieldsV1": fields}]
    assert written({"metadata": metadata}, ALLOCATED) == created + 7
    assert written({"metadata": metadata}, ATTACHED) == created
