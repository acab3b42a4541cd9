"""Pure: merge patches of JSON (RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(value: Any, patch: Any) -> Any:
    """Return ``value`` with ``patch``: ``null`` removes a field, an object is merged, anything else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(value) if isinstance(value, Mapping) else {}
    for key, wanted in patch.items():
        if wanted is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), wanted)
    return found
