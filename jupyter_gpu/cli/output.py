"""What the commands print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def say(what: str | Mapping[str, Any]) -> None:
    """Print a text, or an object as one line of JSON."""
    try:
        print(what if isinstance(what, str) else json.dumps(what, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has seen enough
