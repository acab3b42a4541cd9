"""The output of the commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_gpu.kernel.reports.status import GpuStatus


def say(what: str | Mapping[str, Any]) -> None:
    """Print a text, or an object as one line of JSON."""
    try:
        print(what if isinstance(what, str) else json.dumps(what, ensure_ascii=False), flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has seen enough


def say_status(status: GpuStatus, *, as_json: bool) -> None:
    """Print the current state, and a warning if this shell's variables are outdated."""
    from jupyter_gpu.kernel.cuda import guard

    from .environment import outdated

    say({**status.view.to_json(), "sentence": status.sentence} if as_json else str(status))
    if hint := outdated(status.view, guard.guard().inherited, os.environ):
        print(hint, file=sys.stderr)
