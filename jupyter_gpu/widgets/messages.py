"""What page and kernel say to each other about a slider, in messages that no notebook is saved with. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..model import strict
from ..model.quantity import MAX_MILLI
from ..model.sentence import sentence
from ..model.view import Sample, View

_ID = 64
"""Characters of a wish's name at most."""
_NO_SERVER = "GPU: no Jupyter server with jupyter-gpu was found here"


@dataclass(frozen=True, slots=True)
class Look:
    """Somebody looks at a page that does not reach the server itself."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Somebody moved the slider on such a page."""

    name: str
    """Chosen by the page; the answer carries it, because all pages of a notebook hear it."""
    milli: int


def read_message(content: Any) -> Look | Wish | None:
    """What a page says; None for anything else, for the page is outside."""
    try:
        body = strict.an_object(content, "message")
        if strict.required(body, "type", strict.one_of("look", "wish")) == "look":
            return Look()
        name = strict.required(body, "id", strict.text(_ID))
        return Wish(name, strict.required(body, "milli", strict.integer(0, MAX_MILLI)))
    except strict.FieldError:
        return None


def view_message(view: View) -> Mapping[str, Any]:
    """The view, as in the server's stream."""
    return {"type": "view", "view": view.to_json()}


def sample_message(sample: Sample) -> Mapping[str, Any]:
    """A sample, as in the server's stream."""
    return {"type": "sample", "sample": sample.to_json()}


def lost_message(error: str) -> Mapping[str, Any]:
    """The kernel does not reach its server."""
    return {"type": "error", "reason": "ServerUnreachable", "message": error}


def answer_message(wish: str, error: str) -> Mapping[str, Any]:
    """A wish is recorded, or refused with a sentence."""
    return {"type": "answer", "id": wish, "error": error}


def saved_line(view: View | None) -> str:
    """The line of text that stays in a saved notebook: without the names of other notebooks and of processes."""
    if view is None:
        return _NO_SERVER
    return f"GPU: {sentence(replace(view, gpus=tuple(item._replace(users=()) for item in view.gpus)))}"
