"""Options that several commands have."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ..kernel import Gpu

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
"""Where a module of commands adds its own."""


def server() -> argparse.ArgumentParser:
    """Make the parent of commands that speak with a server."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--url",
        metavar="URL",
        help="of the server, as Jupyter prints it; the token may be in JUPYTER_GPU_TOKEN instead",
    )
    return parent


def output(what: str = "print JSON, for scripts; errors, too") -> argparse.ArgumentParser:
    """Make the parent of commands that print JSON on demand."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--json", action="store_true", help=what)
    return parent


def patience() -> argparse.ArgumentParser:
    """Make the parent of commands that wait for the request to be fulfilled."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting after this time")
    return parent


def gpus(options: argparse.Namespace) -> Gpu:
    """Find the GPUs of the server that the options name, or of the one that this process belongs to."""
    from ..kernel import Gpu

    found = Gpu()
    if options.url:
        import os

        from .. import discover

        found.connect(options.url, os.environ.get(discover.TOKEN))
    return found
