"""The messages between page and kernel about a slider, with which no notebook is saved. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import Sample, View

_ID = 64
"""Characters of a wish's name at most."""
_NO_SERVER = "GPU: no Jupyter server with jupyter-gpu was found here"


@dataclass(frozen=True, slots=True)
class LookMessage:
    """The message that a page is visible that does not reach the server itself."""


@dataclass(frozen=True, slots=True)
class WishMessage:
    """The message that the slider was moved on such a page."""

    name: str
    """Chosen by the page; the answer carries it, because all pages of a notebook hear it."""
    milli: int


def read_message(content: Any) -> LookMessage | WishMessage | None:
    """Read a page's message; None for anything else, for the page is outside."""
    try:
        body = strict.an_object(content, "message")
        if strict.required(body, "type", strict.one_of("look", "wish")) == "look":
            return LookMessage()
        name = strict.required(body, "id", strict.text(_ID))
        return WishMessage(name, strict.required(body, "milli", strict.integer(0, MAX_MILLI)))
    except strict.FieldError:
        return None


def view_message(view: View) -> Mapping[str, Any]:
    """Make the message of a view, as in the server's stream."""
    return {"type": "view", "view": view.to_json()}


def sample_message(sample: Sample) -> Mapping[str, Any]:
    """Make the message of a sample, as in the server's stream."""
    return {"type": "sample", "sample": sample.to_json()}


def lost_message(error: str) -> Mapping[str, Any]:
    """Make the message that the kernel does not reach its server."""
    return {"type": "error", "reason": "ServerUnreachable", "message": error}


def answer_message(wish: str, error: str) -> Mapping[str, Any]:
    """Make the message that a wish is recorded, or refused with a sentence."""
    return {"type": "answer", "id": wish, "error": error}


def saved_line(view: View | None) -> str:
    """Write the text that stays in a saved notebook: without the names of other notebooks and of processes."""
    if view is None:
        return _NO_SERVER
    return f"GPU: {sentence(replace(view, gpus=tuple(item._replace(users=()) for item in view.gpus)))}"
