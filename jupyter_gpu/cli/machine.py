"""``jupyter gpu machine``: who has which GPU of this machine, and who waits."""

from __future__ import annotations

import argparse

from . import codes, options
from .output import say


def add(commands: options.Commands) -> None:
    """Add the command."""
    machine = options.command(
        commands,
        "machine",
        "say who has which GPU of this machine, and who waits",
        parents=[options.server(), options.output()],
    )
    machine.set_defaults(run=_machine, reads_only=True)


def _machine(given: argparse.Namespace) -> int:
    report = options.gpus(given).machine()
    say(report.machine.to_json() if given.json else str(report))
    return codes.DONE
