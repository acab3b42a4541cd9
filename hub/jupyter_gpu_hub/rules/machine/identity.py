"""Pure: what identifies objects that have no API server: names, uids and versions follow from their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(value: Any, digits: int = 16) -> str:
    """Return hexadecimal digits that are others for any other JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:digits]


def number(value: Any) -> int:
    """Return a number that is another one for any other JSON value; exact in every JSON reader."""
    return int(digest(value, 12), 16)


def versioned(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the version that follows from its content."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    plain = {**item, "metadata": metadata}
    return {**plain, "metadata": {**metadata, "resourceVersion": digest(plain)}}
