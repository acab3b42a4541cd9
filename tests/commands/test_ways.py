"""Findings of `jupyter gpu doctor` about workers on other nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.doctor.rules.findings import Level
from jupyter_gpu.doctor.rules.ways import Tried, Way, judge_ways
from jupyter_gpu.model.view import View
from tests.model import golden
from tests.model.strategies import views

VIEWS = {case["name"]: View.from_json(case["view"]) for case in golden.load("views")}
TWO = VIEWS["ready, one here and one on another node"]


@pytest.mark.parametrize(
    ("tried", "level", "said"),
    [
        (Tried([Way("w1", 0.0034)]), Level.OK, "The worker on node2 answers in 3 ms, and knows the key"),
        (Tried([Way("w1", trouble="It does not answer.")]), Level.PROBLEM, "It does not answer."),
        (Tried(), Level.PROBLEM, "no key yet for the worker on node2"),
        (Tried([Way("w2")]), Level.PROBLEM, "no key yet for the worker on node2"),
        (Tried(untried="it is far."), Level.NOTE, "was not tried: it is far."),
    ],
)
def test_way_to_a_worker(tried: Tried, level: Level, said: str) -> None:
    """A worker that runs must answer; one without a key is not reached by any kernel."""
    (finding,) = judge_ways(TWO, tried)
    assert (finding.level, finding.about) == (level, "worker")
    assert said in finding.text
    assert ("ports 47100 to 47141" in finding.advice) is bool(tried.ways and tried.ways[0].trouble)


def test_worker_with_other_packages() -> None:
    """It answers, but no value could be read there."""
    answers, unlike = judge_ways(TWO, Tried([Way("w1", 0.0034, unlike="The worker has numpy 1 and this process 2.")]))
    assert (answers.level, unlike.level, unlike.about) == (Level.OK, Level.PROBLEM, "worker")
    assert unlike.text == "node2: The worker has numpy 1 and this process 2."


@pytest.mark.parametrize(
    ("missing", "level", "said"),
    [
        (["cryptography"], Level.NOTE, "slower way"),
        (["cloudpickle", "cryptography"], Level.PROBLEM, "cloudpickle, cryptography"),
    ],
)
def test_missing_packages(missing: list[str], level: Level, said: str) -> None:
    """Without one of them values go slower, without the others nothing goes."""
    finding, *_ = judge_ways(replace(TWO, workers=()), Tried(missing=missing, untried="so."))
    assert (finding.level, finding.about) == (level, "remote")
    assert said in finding.text


def test_worker_that_does_not_run_is_not_tried() -> None:
    """Its condition says why; where no other node serves the server, nothing is said."""
    waits = VIEWS["waiting, a worker is refused"]
    assert not list(judge_ways(replace(waits, elsewhere=1000), Tried()))
    assert not list(judge_ways(replace(TWO, elsewhere=None), Tried(missing=["zmq"])))


@given(views, st.lists(st.builds(Way, st.sampled_from(["w1", "w2"]), st.just(0.1), st.sampled_from(["", "No."]))))
def test_any_view_can_be_judged(view: View, ways: list[Way]) -> None:
    """Each worker that runs has one finding."""
    ready = [worker for worker in view.workers if worker.stage == "ready"] if view.elsewhere is not None else []
    assert len(list(judge_ways(view, Tried(ways)))) == len(ready)
