"""Owners: the user, or else the namespace, whose pods are counted together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

USERNAME = "hub.jupyter.org/username"
"""Annotation with a user's name as it is, by KubeSpawner. Its label of that name is shortened, and proves nothing."""
HUB = "jupyter-gpu.io/hub"
"""Annotation with the name of the hub that the user belongs to; absent: the pod's namespace."""

_SHOWN = 40
"""Most letters of a name within the name of an object."""
_HASH = 16
"""Hexadecimal digits of the hash that tells two names apart."""


@dataclass(frozen=True, slots=True, order=True)
class Owner:
    """The owner of pods: the user of a hub, or a namespace. Two hubs' ``ann`` are two owners."""

    kind: Literal["User", "Namespace"]
    name: str
    """Any text that the hub accepts: ``a/b``, ``ünï``, 255 letters."""
    hub: str = ""
    """Name of a user's hub; empty for a namespace."""


def owner_of(annotations: Mapping[str, str], namespace: str) -> Owner:
    """Return the owner of a pod with these annotations: its user, or its namespace where no user is written."""
    user = annotations.get(USERNAME)
    if not user:
        return Owner("Namespace", namespace)
    return Owner("User", user, annotations.get(HUB) or namespace)


def object_name(kind: str, name: str = "", hub: str = "") -> str:
    """Return the name of the object about a subject or an owner: ``user-ann-fbbaf8f5d9449c6b``, ``default``, ``cap``.

    Always the same for the same subject, so that all writers meet in one object, and a valid name in Kubernetes (RFC
    1123). The hash is of the exact names, so ``Ann`` and ``ann`` get different objects.
    """
    if not name and not hub:
        return kind.lower()
    exact = json.dumps([kind, hub, name]).encode()  # ASCII, whatever the names are
    words = re.findall(r"[a-z0-9]+", name.lower())
    parts = [kind.lower(), "-".join(words)[:_SHOWN].strip("-"), hashlib.sha256(exact).hexdigest()[:_HASH]]
    return "-".join(filter(None, parts))
