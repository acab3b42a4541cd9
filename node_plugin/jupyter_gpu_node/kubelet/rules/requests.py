"""Requests that a pod sends over its socket, read strictly. Pure."""

from __future__ import annotations

from jupyter_gpu.model import strict
from jupyter_gpu.model.service import Peer

MAX_BYTES = 4096
"""Bytes of one request; the keys of eight workers need 500."""
POD = "pod"
"""The state of the pod, which is streamed."""
_read_get = strict.one_of("node", "sample", "details", "totals", POD)
_read_put = strict.one_of("peer")


def read(line: bytes) -> str | Peer:
    """Return what a pod asks for, or the keys that it says are its own. Raises `FieldError`."""
    body = strict.an_object(strict.loads(line, MAX_BYTES), "A request")
    if "put" not in body:
        return strict.required(body, "get", _read_get)
    strict.required(body, "put", _read_put)
    return Peer.from_json(body)
