"""The proof that a pod is one of a user of a hub, where all servers run as one user of the machine. Pure.

The hub gives each server it starts a credential: the name of its user, and a mark of that name which only the hub's key
can make. With the mark the server proves the name for its own pod. The proof is no use to another pod, and the record
in which everybody can read it does not tell the mark.

Credential: ``<mark>:<name>``, with mark = HMAC-SHA256(key, "user:" + name) in hexadecimal digits (RFC 2104). Proof:
HMAC-SHA256(mark, uid of the pod), likewise.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import strict

VARIABLE = "JUPYTER_GPU_HUB_USER"
"""Variable of a server's environment with its credential."""
MAX_NAME = 255
"""Most characters of a name, as of the subject of a limit."""
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
MAX_GROUPS = 1000
_read_name = strict.text(MAX_NAME)
read_groups = strict.list_of(_read_name, MAX_GROUPS)
"""Reads a list of names of groups; raises `FieldError`."""


class HubUserProof(NamedTuple):
    """The name of a pod's user as the pod says it, with the proof."""

    name: str
    proof: str

    def is_valid(self, key: bytes, uid: str) -> bool:
        """Tell whether the hub with this key gave the credential to the pod ``uid``."""
        return hmac.compare_digest(_proof(_mark(key, self.name), uid), self.proof)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object: ``{"name", "proof"}``."""
        return dict(self._asdict())

    @classmethod
    def from_json(cls, value: Any, key: str = "hubUser") -> HubUserProof:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        proof = strict.required(body, "proof", strict.text(64))
        if not _DIGEST.fullmatch(proof):
            raise strict.FieldError(f"{key!r} has no proof.", key)
        return cls(strict.required(body, "name", _read_name), proof)


def credential(key: bytes, name: str) -> str:
    """Return the credential of a user; raises `FieldError` for a name that no limit could be about."""
    return f"{_mark(key, _read_name(name, 'name'))}:{name}"


def usable_groups(names: Iterable[str]) -> list[str]:
    """Return the groups that a limit can be about, so that `read_groups` reads them: no other name counts."""
    return sorted({name for name in names if _is_name(name)})[:MAX_GROUPS]


def _is_name(name: str) -> bool:
    try:
        return bool(_read_name(name, "group"))
    except strict.FieldError:
        return False


def prove(credential: str, uid: str) -> HubUserProof | None:
    """Return the proof for the pod ``uid``; ``None``: this is no credential."""
    mark, _, name = credential.partition(":")
    try:
        return HubUserProof(_read_name(name, "name"), _proof(mark, uid)) if _DIGEST.fullmatch(mark) else None
    except strict.FieldError:
        return None


def _mark(key: bytes, name: str) -> str:
    return hmac.new(key, b"user:" + name.encode(), hashlib.sha256).hexdigest()


def _proof(mark: str, uid: str) -> str:
    return hmac.new(mark.encode(), uid.encode(), hashlib.sha256).hexdigest()
