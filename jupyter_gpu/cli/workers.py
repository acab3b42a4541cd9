"""``jupyter gpu workers``: the server's workers on other nodes, their GPUs, and why one is not there yet."""

from __future__ import annotations

import argparse

from . import codes, options
from .output import say


def add(commands: options.Commands) -> None:
    """Add the command."""
    workers = options.command(
        commands,
        "workers",
        "list the workers that have GPUs of other nodes, and why one is not there yet",
        parents=[options.server(), options.output()],
        epilog="A cluster starts them when GPUs of other nodes are asked for, and keeps each for a while.",
    )
    workers.set_defaults(run=_workers, reads_only=True)


def _workers(given: argparse.Namespace) -> int:
    from jupyter_gpu.kernel.client import get_status

    from .rules import workers_table

    view = options.client(given).send(get_status())
    if given.json:
        say({"elsewhere": view.elsewhere, "workers": [worker.to_json() for worker in view.workers]})
    else:
        say("\n".join(workers_table.lines(view)))
    return codes.DONE
