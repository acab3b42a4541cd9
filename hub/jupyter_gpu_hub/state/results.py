"""Results of edits for programs, and the refusal that each error of a write is."""

from __future__ import annotations

from typing import Any

from jupyter_gpu.kube import KubeError, Unavailable
from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext, message_of
from jupyter_gpu_hub.rules.edits import Edit, Prepared
from jupyter_gpu_hub.rules.refusals import Refusal, of_status

REFUSED = (Refusal, KubeError, strict.FieldError)
"""Errors that the client gets; any other is a bug."""
WORDS = ("created", "changed", "removed", "unchanged", "refused")
"""Words for the result of an edit."""


def done(prepared: Prepared, version: str | None = None) -> dict[str, Any]:
    """Return the result of an edit that was, or would be, written; ``version``: that of the object since then."""
    change = prepared.change
    word = "changed"
    if prepared.write is None:
        word = "unchanged"
    elif change.before is None:
        word = "created"
    elif change.after is None:
        word = "removed"
    return {
        "subject": prepared.subject.to_json(),
        "object": prepared.object_name,
        "result": word,
        "from": change.before,
        "to": change.after,
        **({} if version is None else {"version": version}),
    }


def refused(edit: Edit, error: Exception) -> dict[str, Any]:
    """Return the result of an edit that was refused."""
    return {"subject": edit.subject.to_json(), "result": "refused", "error": refusal_of(error).to_json()}


def refusal_of(error: BaseException | None) -> Refusal:
    """Return what to answer for an error; one that nobody foresaw shows nothing of itself."""
    match error:
        case Refusal():
            return error
        case strict.OversizeError():
            return Refusal(413, message_of(error))
        case strict.FieldError():
            return Refusal(400, message_of(error), field=error.field)
        case Unavailable():
            advice = gettext("%1 Limits that are set hold. Try again in a moment.", error.message)
            return Refusal(503, advice, retry_after=2)
        case KubeError():
            return _of_kube(error)
    return of_status(500)


def _of_kube(error: KubeError) -> Refusal:
    """Return the refusal for an answer of the API server. What it says of a limit is written for people."""
    if error.status == 403:
        return Refusal(403, gettext("The cluster does not allow that: %1", error.message))
    status = error.status if error.status in (404, 409, 422, 429) else 503
    return Refusal(status, error.message, retry_after=2.0 if status in (429, 503) else 0.0)
