"""Pure: answers of the hub's service about the pod of a server, as a pod or as the error that they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_gpu.kube import errors
from jupyter_gpu.kube.errors import Invalid, Unavailable
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import from_json

MAX_BYTES = 512 * 1024
"""Most bytes of an answer: all annotations of a pod have 256 KiB together."""
_MISTAKES = (400, 405, 413, 415)
_read_name = strict.text(253)


def read(status: int, text: bytes, retry_after: str) -> Mapping[str, Any]:
    """Return the pod of an answer, as the API server has it; raises `KubeError`, and `GpuError` for a refused request.

    ``retry_after``: the header of that name.
    """
    if 300 <= status < 400:
        raise Unavailable(
            status,
            "Redirected",
            "The address of the hub's service leads to another one, and the token is not sent there. Set "
            "GpuExtension.hub_service to the service's own address.",
            sent=False,
        )
    try:
        body = strict.an_object(strict.loads(text, MAX_BYTES), "The answer")
        if status == 200:
            return _pod(body)
        message = strict.required(body, "message", strict.label(errors.MAX_MESSAGE))
        reason = strict.required(body, "reason", _read_name)
        details = strict.required(body, "details", strict.an_object)
    except strict.FieldError as error:
        # A proxy may have answered: only the service itself can know that the pod is not there, for example.
        raise Unavailable(
            status,
            "NotTheService",
            f"The address of the hub's service answers {status}, but not as the service does ({error}).",
            sent=status == 200 or status >= 500,
        ) from None
    raise _refusal(status, reason, message, details, retry_after)


def away(error: Exception, *, sent: bool) -> Unavailable:
    """Return the error for a request without an answer; ``sent``: whether it may have arrived."""
    why = str(error) or ("it took too long" if isinstance(error, TimeoutError) else type(error).__name__)
    return Unavailable(
        0, type(error).__name__, f"The hub's service does not answer: {strict.printable(why, 300)}.", sent=sent
    )


def _refusal(status: int, reason: str, message: str, details: Mapping[str, Any], retry_after: str) -> Exception:
    if status == 422 and "error" in details:
        return from_json(details["error"])
    if status in _MISTAKES or "pods" in details:  # to repeat it would not help
        return Invalid(status, reason, message)
    if status >= 500:
        return Unavailable(status, reason, message, sent=status != 503 or details.get("unknown") is True)
    return errors.from_status(status, {"reason": reason, "message": message}, retry_after)


def _pod(body: Mapping[str, Any]) -> Mapping[str, Any]:
    texts = strict.required(body, "annotations", strict.an_object)
    for key, text in texts.items():
        if not isinstance(text, str):
            raise strict.FieldError(f"The annotation {strict.printable(key, 64)!r} must be text.", "annotations")
    names = {key: strict.required(body, key, _read_name) for key in ("namespace", "name", "uid")}
    version = strict.required(body, "version", _read_name)
    return {"metadata": {**names, "resourceVersion": version, "annotations": dict(texts)}}
