"""Messages between page and kernel about a slider, which are not saved with the notebook. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import Sample, View

_ID = 64
"""The most characters of a request's id."""
_NO_SERVER = "GPU: no Jupyter server with jupyter-gpu was found here"


@dataclass(frozen=True, slots=True)
class VisibleMessage:
    """The message that a page without its own connection to the server is visible."""


@dataclass(frozen=True, slots=True)
class RequestMessage:
    """The message that such a page moved the slider."""

    key: str
    """Chosen by the page and repeated in the answer, which all pages of a notebook get."""
    milli: int


def read_message(content: Any) -> VisibleMessage | RequestMessage | None:
    """Read a page's message, which is not trusted; None for anything else."""
    try:
        body = strict.an_object(content, "message")
        if strict.required(body, "type", strict.one_of("visible", "request")) == "visible":
            return VisibleMessage()
        key = strict.required(body, "id", strict.text(_ID))
        return RequestMessage(key, strict.required(body, "milli", strict.integer(0, MAX_MILLI)))
    except strict.FieldError:
        return None


def view_message(view: View) -> Mapping[str, Any]:
    """Return the message of a view, as in the server's stream."""
    return {"type": "view", "view": view.to_json()}


def sample_message(sample: Sample) -> Mapping[str, Any]:
    """Return the message of a sample, as in the server's stream."""
    return {"type": "sample", "sample": sample.to_json()}


def lost_message(error: str) -> Mapping[str, Any]:
    """Return the message that the kernel does not reach its server."""
    return {"type": "error", "reason": "ServerUnreachable", "message": error}


def answer_message(key: str, error: str) -> Mapping[str, Any]:
    """Return the message that a request is recorded, or refused with a reason."""
    return {"type": "answer", "id": key, "error": error}


def saved_line(view: View | None) -> str:
    """Return the text that stays in a saved notebook: without names of other notebooks and processes."""
    if view is None:
        return _NO_SERVER
    return f"GPU: {sentence(replace(view, gpus=tuple(item._replace(users=()) for item in view.gpus)))}"
