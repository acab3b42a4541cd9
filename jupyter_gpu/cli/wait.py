"""``jupyter gpu wait``: waits until the current request is fulfilled, whichever program made it."""

from __future__ import annotations

import argparse

from . import codes, options
from .output import say_status


def add(commands: options.Commands) -> None:
    """Add the command."""
    wait = options.command(
        commands,
        "wait",
        "wait until what was asked for is there",
        parents=[options.server(), options.output(), options.patience()],
        epilog="Asks for nothing itself: it ends with 0 as soon as what the panel, a notebook or 'resize --no-wait' "
        "has asked for is attached, or what was given back is closed. With --timeout it may end with 3 or 4, and the "
        "request stands.",
    )
    wait.set_defaults(run=_wait, reads_only=True)


def _wait(given: argparse.Namespace) -> int:
    status = options.gpus(given).wait(timeout=given.timeout)
    say_status(status, as_json=given.json)
    return codes.of_status(status.view.status)
