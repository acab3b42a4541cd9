"""The identity of our own pod.

The downward API says it best. Without it, a token that is bound to the pod names it, too. Only the API server can
verify a token, but this one is our own.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.credentials import Credentials
from jupyter_gpu.model.errors import BackendUnavailable

_HINT = """Add to the container in the pod's spec:
env:
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}"""


@dataclass(frozen=True, slots=True)
class Identity:
    """One pod; ``uid`` is empty if it is not known."""

    namespace: str
    name: str
    uid: str = ""


def here(credentials: Credentials) -> Identity:
    """Identify the pod that this process runs in. Raises `BackendUnavailable`."""
    try:
        token = credentials.token.read_text(encoding="ascii") if credentials.token else ""
    except (OSError, UnicodeError):
        token = ""
    return identify(os.environ, token, credentials.namespace, socket.gethostname())


def identify(environ: Mapping[str, str], token: str, namespace: str, hostname: str) -> Identity:
    """Identify the pod: by environment, else token, else host name, which is the pod's unless the spec sets one."""
    said = _claims(token)
    pod = said.get("pod")
    bound = pod if isinstance(pod, Mapping) else {}
    where = environ.get("POD_NAMESPACE") or str(said.get("namespace") or "") or namespace
    name = environ.get("POD_NAME") or str(bound.get("name") or "") or hostname
    uid = environ.get("POD_UID") or (str(bound.get("uid") or "") if bound.get("name") == name else "")
    if not where or not name:
        raise BackendUnavailable(f"It is not known which pod this server runs in. {_HINT}")
    return Identity(where, name, uid)


def mistaken(identity: Identity, why: str) -> BackendUnavailable:
    """Return the error for a pod that the cluster does not know."""
    return BackendUnavailable(
        f"This server was not found as pod {identity.name!r} of namespace {identity.namespace!r}: {why}. {_HINT}"
    )


def _claims(token: str) -> Mapping[str, Any]:
    """Return what a service account token says about its pod; nothing if it is no such token."""
    parts = token.strip().split(".")
    if len(parts) != 3:
        return {}
    try:
        body = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return {}
    found = body.get("kubernetes.io") if isinstance(body, Mapping) else None
    return found if isinstance(found, Mapping) else {}
