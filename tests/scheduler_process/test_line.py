"""A long line on a real API server: an action of one user is not a write to every pod."""

import time

import pytest

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED, Allocated
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage

pytestmark = pytest.mark.cluster

COUNT = 60


def _line(stage: Stage) -> dict[str, str]:
    """Create one GPU, its holder, and many pods that wait for it; return their uids. All have a position."""
    node = stage.node(gpus=1, slots=200)
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    uids = {}
    for number in range(COUNT):
        name = f"p{number:02}"
        uids[name] = stage.pod(name, node, {"generation": 1, "milli": 1000})
        _place(stage, name)  # of two that are seen at once, made in the same second, either may be first
    stage.until_reason(f"p{COUNT - 1:02}", "Deferred")
    for number, name in enumerate(uids):
        assert _place(stage, name) == (number + 1 if number < 10 else _place(stage, name))
    return uids


def _place(stage: Stage, name: str) -> int:
    found = until(lambda: (decided := stage.allocated(name)) and decided.position, what=f"{name} to have a place")
    assert found
    return found


def _until_place(stage: Stage, name: str, place: int) -> None:
    until(lambda: _place(stage, name) == place, what=f"{name} to be told {place}")


def _until_answered(stage: Stage, name: str, generation: int) -> None:
    until(lambda: (found := stage.allocated(name)) and found.observed_generation == generation, what="an answer")


def _writes(stage: Stage, uids: dict[str, str]) -> int:
    return sum(len(stage.watcher.writes(uid)) for uid in uids.values())


def test_leaving_the_line_costs_few_writes(stage: Stage) -> None:
    """Pods near the front get their new position, few of those behind do; the front moves up by one."""
    stage.scheduler(settings={"line": {"placeSeconds": 0.2}})
    uids = _line(stage)
    before = _writes(stage, uids)
    stage.delete("p00")
    for number in range(1, 10):
        _until_place(stage, f"p{number:02}", number)
    time.sleep(1)  # whatever else is written would be on its way now
    assert 9 <= _writes(stage, uids) - before <= 9 + 10


def test_changing_a_priority_in_a_loop_costs_others_few_writes(stage: Stage) -> None:
    """To and fro ten times: others are written once, if at all; in the end all have their true positions."""
    stage.scheduler(settings={"line": {"placeSeconds": 3}})
    uids = _line(stage)
    last = f"p{COUNT - 1:02}"
    time.sleep(3)
    before = _writes(stage, {name: uid for name, uid in uids.items() if name != last})
    for turn in range(10):
        stage.request(last, {"generation": turn + 2, "milli": 1000, "priority": (turn + 1) % 2})
        _until_answered(stage, last, turn + 2)
    others = _writes(stage, {name: uid for name, uid in uids.items() if name != last}) - before
    assert others <= 2 * 11
    until(lambda: [_place(stage, f"p{number:02}") for number in range(9)] == list(range(1, 10)), what="the places")


def test_frequent_changes_of_a_wish_are_answered_at_the_pace(stage: Stage) -> None:
    """The newest is answered in the end; what is given back is not held up."""
    node = stage.node(gpus=2)
    stage.scheduler(settings={"line": {"wishBurst": 3, "wishSeconds": 1}})
    stage.pod("a", node, {"generation": 1, "milli": 1000, "priority": 0})
    stage.until_count("a", 1)
    for turn in range(40):
        stage.request("a", {"generation": turn + 2, "milli": 1000, "priority": turn % 2})
    stage.request("a", {"generation": 42, "milli": 2000})
    _until_answered(stage, "a", 42)
    stage.until_count("a", 2)
    assert len(stage.decisions("a")) <= 12
    for turn in range(3):
        stage.request("a", {"generation": 43 + 2 * turn, "milli": 2000, "priority": turn})
    began = time.monotonic()
    stage.request("a", {"generation": 50, "milli": 0})
    stage.until_count("a", 0)
    assert time.monotonic() - began < 1


def test_pod_that_has_waited_long_enough_is_served(stage: Stage) -> None:
    """Newcomers of a higher priority come again and again; a change of leader does not make it younger."""
    patience = {"line": {"patienceSeconds": 6}}
    node = stage.node(gpus=1, slots=100)
    stage.scheduler(settings=patience)
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    stage.pod("patient", node, {"generation": 1, "milli": 1000, "priority": 0})
    since = stage.until_reason("patient", "Deferred").extra["since"]
    owner = "owner"
    for turn in range(40):
        newcomer = f"new{turn}"
        stage.pod(newcomer, node, {"generation": 1, "milli": 1000, "priority": 1})
        stage.until_reason(newcomer, "Deferred")
        if turn == 3:
            stage.schedulers[-1].kill()
            stage.scheduler(settings=patience)
            assert (stage.allocated("patient") or Allocated(0)).extra["since"] == since
        stage.request(owner, "0")
        until(lambda: stage.has("patient") == ["0"] or stage.has(newcomer) == ["0"], what="somebody to be served")  # noqa: B023
        if stage.has("patient") == ["0"]:
            break
        assert turn < 39, "it was never served"
        owner = newcomer
    assert 0 < turn < 39
    assert "since" not in (stage.allocated("patient") or Allocated(0)).extra


def test_priority_of_a_namespace_is_capped(stage: Stage) -> None:
    """A wish above it counts as that, its user sees so, and `requested` stays as it was written."""
    node = stage.node(gpus=1)
    stage.scheduler(settings={"priorities": {"default": 9, "namespaces": {stage.namespace: 2}}})
    stage.pod("owner", node, 1)
    stage.until_count("owner", 1)
    for name, priority in (("plain", 2), ("bold", 9)):
        stage.pod(name, node, {"generation": 1, "milli": 1000, "priority": priority})
        stage.until_reason(name, "Deferred")
    assert "Priority 9 counts as 2" in stage.until_event("bold", "GpusDeferred")
    assert '"priority": 9' in (objects.annotation(stage.get("bold"), REQUESTED) or "")
    stage.request("owner", "0")
    stage.until_count("plain", 1)
