"""The golden files, which the front end reads too, say what the model does."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest

from jupyter_gpu.model.annotations import (
    Reason,
    decode_allocated,
    decode_attached,
    decode_inventory,
    decode_requested,
    encode,
)
from jupyter_gpu.model.errors import InvalidAnnotation, InvalidRequest
from jupyter_gpu.model.node_use import decode_use
from jupyter_gpu.model.pod_worker import Stage
from jupyter_gpu.model.request import decode_request
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.service import decode_service, decode_worker, decode_worker_service, decode_worker_status
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import GpuState, Mode, Sample, View

from . import golden

DECODERS: dict[str, Callable[[str | bytes], Any]] = {
    "requested": decode_requested,
    "allocated": decode_allocated,
    "attached": decode_attached,
    "inventory": decode_inventory,
    "use": decode_use,
    "service": decode_service,
    "worker-status": decode_worker_status,
    "worker": decode_worker,
}


def decoder(case: dict[str, Any]) -> Callable[[str | bytes], Any]:
    """Return the function that reads the annotation of a case: a worker's ``service`` is another than a notebook's."""
    return decode_worker_service if case.get("pod") == "worker" else DECODERS[case["key"]]


def cases(name: str) -> list[Any]:
    """Parameters for each case of a golden file, under its name."""
    return [pytest.param(case, id=case["name"]) for case in golden.load(name)]


@pytest.mark.parametrize("case", cases("views"))
def test_views(case: dict[str, Any]) -> None:
    """A view is read and written again without loss, computed fields included."""
    again = View.from_json(case["view"])
    assert json.loads(json.dumps(again.to_json())) == case["view"]
    assert View.from_json(again.to_json()) == again


@pytest.mark.parametrize("case", cases("bad_views"))
def test_bad_views(case: dict[str, Any]) -> None:
    """A view that is not as agreed is refused, and by nothing but the reader's own error."""
    with pytest.raises(FieldError):
        View.from_json(case["view"])


@pytest.mark.parametrize("case", cases("sentences"))
def test_sentences(case: dict[str, Any]) -> None:
    """Each state of affairs has its sentence."""
    view = View.from_json(case["view"])
    assert json.loads(json.dumps(view.to_json())) == case["view"]
    assert sentence(view, zone=UTC) == case["sentence"]


@pytest.mark.parametrize("case", cases("samples"))
def test_samples(case: dict[str, Any]) -> None:
    """A sample is read and written again without loss."""
    assert json.loads(json.dumps(Sample.from_json(case["sample"]).to_json())) == case["sample"]


@pytest.mark.parametrize("case", cases("bad_samples"))
def test_bad_samples(case: dict[str, Any]) -> None:
    """A sample that is not as agreed is refused, and by nothing but the reader's own error."""
    with pytest.raises(FieldError):
        Sample.from_json(case["sample"])


@pytest.mark.parametrize("case", cases("wishes"))
def test_wishes(case: dict[str, Any]) -> None:
    """Bodies of a request: what is read from them, or which field is refused in which words."""
    body = case["body"].encode()
    if "error" not in case:
        asked = decode_request(body)
        assert asked.wish.to_json() == case["wish"]
        assert asked.generation == case["generation"]
        return
    with pytest.raises(InvalidRequest) as caught:
        decode_request(body)
    error = case["error"]
    assert (caught.value.reason, caught.value.field) == (error["reason"], error["field"])
    assert error["says"] in caught.value.message


@pytest.mark.parametrize("case", cases("annotations"))
def test_annotations(case: dict[str, Any]) -> None:
    """Text of each annotation, its value, and the text that is written again."""
    decode = decoder(case)
    if "error" not in case:
        assert json.loads(encode(decode(case["text"]))) == case["value"]
        assert encode(decode(case["text"].encode())) == case["again"]
        assert encode(decode(case["again"])) == case["again"]
        return
    with pytest.raises(InvalidAnnotation) as caught:
        decode(case["text"])
    assert caught.value.details == {"key": f"jupyter-gpu.io/{case['key']}", "field": case["error"]["field"]}
    assert case["error"]["says"] in caught.value.message


def test_views_cover_the_vocabulary() -> None:
    """Every phase, reason, state, mode and optional part occurs, so that the front end meets them all."""
    views = [View.from_json(case["view"]) for case in golden.load("views")]
    assert {view.status.phase for view in views} == set(Phase)
    assert {view.status.reason for view in views} == {None, *Reason}
    assert {view.mode for view in views} == set(Mode)
    assert {gpu.state for view in views for gpu in view.gpus} == set(GpuState)
    assert {view.simulated for view in views} == {True, False}
    assert any(view.conditions for view in views)
    assert any(gpu.milli < 1000 for view in views for gpu in view.gpus)
    assert any(user.foreign for view in views for gpu in view.gpus for user in gpu.users)
    assert any(gpu.strangers for view in views for gpu in view.gpus)
    assert any(gpu.parked for view in views for gpu in view.gpus)
    assert any(view.park_at for view in views)
    assert any(gpu.idle_since for view in views for gpu in view.gpus)
    assert {worker.stage for view in views for worker in view.workers} == set(Stage)
    assert any(worker.idle_since for view in views for worker in view.workers)
    assert any(worker.shipped and worker.round_trip for view in views for worker in view.workers)


@pytest.mark.parametrize("path", sorted(golden.FOLDER.glob("*.json")), ids=lambda path: str(path.stem))
def test_layout(path: Any) -> None:
    """A golden file is laid out in one way, and no two cases in it have the same name."""
    text = path.read_text(encoding="utf-8")
    assert text == golden.pretty(json.loads(text)) + "\n", "run python tests/model/golden.py"
    names = [(case["name"], case.get("key"), case.get("pod")) for case in json.loads(text)]
    assert len(set(names)) == len(names)
