"""``jupyter gpu status | resize 2 | release``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from . import codes, offers, options
from .output import say_status

if TYPE_CHECKING:
    from jupyter_gpu.kernel.reports.status import GpuStatus

_OPTIONS = ("each", "memory", "model", "vendor", "topology", "placement", "priority", "lendable")
"""Options of a request; those that are not named stay as they are."""


def add(commands: options.Commands) -> None:
    """Add the commands of this module."""
    common = [options.server(), options.output()]
    waiting = [options.patience(), options.no_wait()]
    status = options.command(commands, "status", "show the current state", parents=common)
    status.set_defaults(run=_status, reads_only=True)
    resize = options.command(
        commands,
        "resize",
        "have this many GPUs in all; wait until they are there",
        parents=[*common, *waiting, options.request()],
        epilog="Options that are not named stay as they were asked for last. 'any' takes one back, as in --memory any; "
        "release takes back all of them.",
    )
    amount = resize.add_argument(
        "amount",
        nargs="?",
        help="2, 0.5 or 500m; without it --memory is for the least share, in time that others leave",
    )
    options.offer(amount, offers.amounts)
    resize.set_defaults(run=_resize)
    release = options.command(
        commands, "release", "give all GPUs back, and cancel what is waited for", parents=[*common, *waiting]
    )
    release.set_defaults(run=_release)


def _status(given: argparse.Namespace) -> int:
    say_status(options.gpus(given).status(), as_json=given.json)
    return codes.DONE


def _resize(given: argparse.Namespace) -> int:
    named = {name: getattr(given, name) for name in _OPTIONS if getattr(given, name) is not None}
    amount = () if given.amount is None else (given.amount,)
    return _answer(given, options.gpus(given).resize(*amount, **named, wait=not given.no_wait, timeout=given.timeout))


def _release(given: argparse.Namespace) -> int:
    return _answer(given, options.gpus(given).release(wait=not given.no_wait, timeout=given.timeout))


def _answer(given: argparse.Namespace, status: GpuStatus) -> int:
    say_status(status, as_json=given.json)
    return codes.of_status(status.view.status)
