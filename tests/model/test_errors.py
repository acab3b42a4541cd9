"""Errors travel as JSON and by pickle, and always end as one sentence for people."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest
from hypothesis import given

from jupyter_gpu.model import errors
from jupyter_gpu.model.errors import GpuError, from_json

from . import golden
from .strategies import json_values

EXAMPLES: list[GpuError] = [
    errors.InvalidRequest("'gpus' is wrong.", field="gpus"),
    errors.TooLarge("Too much."),
    errors.InvalidAnnotation("It cannot be read.", key="jupyter-gpu.io/requested"),
    errors.StaleGeneration(current=7),
    errors.LimitExceeded(limit=1000),
    errors.Infeasible(have=4000),
    errors.NoCapacity(have=500, queue=2),
    errors.NoCapacity(have=0, queue=None),
    errors.Draining(holders=[{"pid": 1, "command": "python", "notebook": "a.ipynb"}]),
    errors.Unhealthy(gpus=["GPU-a"]),
    errors.ParkRefused(why="no-gate", holders=[{"pid": 1, "command": "python"}]),
    errors.GpuDataLost(gpus=["GPU-a"]),
    errors.NotPermitted("You may not."),
    errors.ServerUnreachable("Nobody answers."),
    errors.OutsideServer("One runs here.", servers=[{"url": "http://127.0.0.1:8888/", "folder": "/home/ann"}]),
    errors.BackendUnavailable("Not now.", retry=True),
    errors.LimitExceeded("The group has 2.", limit=1000, source={"kind": "Group", "name": "ml"}, maximum=2000),
]


def subclasses(cls: type[GpuError]) -> set[type[GpuError]]:
    """All below ``cls``."""
    return {cls}.union(*(subclasses(below) for below in cls.__subclasses__()))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason)
def test_error_travels_as_json_and_pickle(error: GpuError) -> None:
    """The same type, sentence and figures arrive on the other side of a socket and of a process."""
    over_http = from_json(json.loads(json.dumps(error.to_json())))
    over_pickle = pickle.loads(pickle.dumps(error))
    for again in (over_http, over_pickle):
        assert type(again) is type(error)
        assert str(again) == str(error) == error.message
        assert again.to_json() == error.to_json()
        assert vars(again) == vars(error)


def test_every_error_class_has_an_example() -> None:
    """No class is forgotten, neither in these examples nor in the module's tree."""
    mine = {cls for cls in subclasses(GpuError) if cls.__module__ == errors.__name__}
    assert {type(error) for error in EXAMPLES} == mine - {GpuError}
    assert all(f"── {cls.__name__} " in (errors.__doc__ or "") for cls in mine - {GpuError})
    assert len({cls.reason for cls in mine}) == len(mine)
    assert all(cls.reason == cls.__name__ and 400 <= cls.http_status < 600 for cls in mine)


@given(json_values)
def test_any_answer_becomes_an_error(body: Any) -> None:
    """Whatever a server answers, the client raises an error with a sentence."""
    assert str(from_json(body))
    assert str(from_json({"reason": "Draining", "message": "No.", "details": body})) == "No."


@pytest.mark.uncounted(after=25)
@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.reason)
@given(details=json_values)
def test_odd_details_never_hide_the_sentence(error: GpuError, details: Any) -> None:
    """Details of another version never hide the sentence."""
    names = (
        "limit",
        "source",
        "maximum",
        "have",
        "queue",
        "holders",
        "gpus",
        "current",
        "message",
        "field",
        "servers",
        "why",
    )
    fields = dict.fromkeys(names, details)
    assert str(from_json({"reason": error.reason, "message": "No.", "details": fields})) == "No."


def test_default_sentence_names_the_remedy() -> None:
    """A default sentence says what is so and what to do."""
    says = {type(error).__name__ + str(i): str(error) for i, error in enumerate(EXAMPLES)}
    assert says["LimitExceeded4"] == (
        "Your server's limit is 1 GPU, for all its notebooks together. Ask for that or less, or ask an administrator "
        "for more."
    )
    assert says["Infeasible5"] == "Only 4 GPUs here can serve this, so it can never be granted. Ask for less."
    assert says["NoCapacity6"].startswith(
        "Not enough GPUs are free: your server has 0.5 GPU and is number 2 in line. The"
    )
    assert says["NoCapacity7"].startswith("Not enough GPUs are free: your server has 0 GPUs. The")
    assert says["Draining8"].startswith("Still open in: a.ipynb. ")
    assert str(errors.Draining(holders=[])).startswith("Still open in: an unknown process. ")
    assert str(errors.Draining(holders=[{"pid": 7}, {"pid": 7, "command": "x"}])).startswith("Still open in: 7, x. ")


ALONE = re.compile(
    r"\byou (are|have|keep|may)\b|\byour (limit|GPUs?|share)\b|this notebook's|GPUs? you ", re.IGNORECASE
)
"""Words by which the reader of an error in one notebook takes the GPUs of the server for those of that notebook."""


@pytest.mark.parametrize(
    "text",
    [
        *(str(error) for error in EXAMPLES),
        *(case["sentence"] for case in golden.load("sentences")),
    ],
)
def test_sentences_name_the_server(text: str) -> None:
    """A place in line, kept GPUs and the server's limit are the server's; a user's limit is not that of a notebook."""
    assert not ALONE.search(text.replace("You may not.", ""))


def test_error_of_a_newer_server_keeps_its_sentence() -> None:
    """An error of a newer server is still an error with its sentence."""
    error = from_json({"reason": "Later", "message": "Come again.", "details": {"when": 5}})
    assert type(error) is GpuError
    assert (error.message, error.details) == ("Come again.", {"when": 5})
    assert type(from_json({"reason": "LimitExceeded", "message": "No."})) is GpuError
