"""``jupyter gpu usage``: the server's use of GPUs since it started."""

from __future__ import annotations

import argparse

from . import codes, options
from .output import say


def add(commands: options.Commands) -> None:
    """Add the command."""
    usage = options.command(
        commands,
        "usage",
        "say what was held and used since the server started",
        parents=[options.server(), options.output()],
        epilog="Held time is exact. How busy a whole GPU was is known only of the time in which somebody looked, in a "
        "panel or with 'watch', and is shown with that time; for a time share it is always known.",
    )
    usage.set_defaults(run=_usage, reads_only=True)


def _usage(given: argparse.Namespace) -> int:
    usage = options.gpus(given).usage()
    say(usage.to_json() if given.json else str(usage))
    return codes.DONE
