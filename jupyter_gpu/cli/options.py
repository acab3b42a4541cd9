"""Options that several commands have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from . import offers

if TYPE_CHECKING:
    from jupyter_gpu.kernel.api import ServerGpus
    from jupyter_gpu.kernel.client import Client

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
"""Parsers to which a module of commands adds its own."""


def command(commands: Commands, name: str, what: str, **more: Any) -> argparse.ArgumentParser:
    """Add a command; ``what`` is its description."""
    return commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.", **more)


def server() -> argparse.ArgumentParser:
    """Return the parent parser of commands that talk to a server."""
    parent = argparse.ArgumentParser(add_help=False)
    which = parent.add_mutually_exclusive_group()
    which.add_argument(
        "--url",
        metavar="URL",
        help="of the server, as Jupyter prints it; its token may be in JUPYTER_GPU_TOKEN instead, and one of yours "
        "that runs here needs none",
    )
    which.add_argument(
        "--connect",
        action="store_true",
        help="in a terminal or script outside every Jupyter server: use the one of yours that runs here",
    )
    return parent


def output(what: str = "print JSON, for scripts; errors, too") -> argparse.ArgumentParser:
    """Return the parent parser of commands that can print JSON."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--json", action="store_true", help=what)
    return parent


def patience() -> argparse.ArgumentParser:
    """Return the parent parser of commands that wait for the request to be fulfilled."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting after this time")
    return parent


def no_wait() -> argparse.ArgumentParser:
    """Return the parent parser of commands that need not wait."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--no-wait", action="store_true", help="return at once")
    return parent


def request() -> argparse.ArgumentParser:
    """Return the parent parser of the options of a request beside the amount."""
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--each", metavar="SHARE", help="cut into shares of this size, each on another GPU; or any")
    parent.add_argument("--memory", metavar="SIZE", help="GPU memory of each share, such as 20GiB, or any")
    model = parent.add_argument(
        "--model", action="append", metavar="NAME", help="an acceptable model; may be repeated; or any"
    )
    offer(model, offers.models)
    vendor = parent.add_argument("--vendor", metavar="NAME", help="of the GPUs, such as nvidia or amd; or any")
    offer(vendor, offers.vendors)
    parent.add_argument("--topology", choices=("any", "island", "switch"), help="how the GPUs must be connected")
    parent.add_argument(
        "--placement", choices=("local", "any"), help="on this node alone, or also on others, where a cluster allows it"
    )
    parent.add_argument("--priority", type=_priority, metavar="0-9", help="higher is served first; or any")
    parent.add_argument(
        "--lendable",
        action=argparse.BooleanOptionalAction,
        help="whether whole GPUs may serve others while they rest, where a cluster lends",
    )
    return parent


def offer(action: argparse.Action, words: Callable[..., list[str]]) -> None:
    """Set the completions of the value of ``action``, where argcomplete finds them."""
    action.completer = words  # type: ignore[attr-defined]


def client(options: argparse.Namespace) -> Client:
    """Return the client of the server that the user names, or of the one that this process belongs to.

    A command that only reads (``reads_only=True`` among its defaults) may read from the one that runs here.
    """
    from jupyter_gpu.kernel import discovery
    from jupyter_gpu.kernel.client import Client
    from jupyter_gpu.model.errors import OutsideServer

    if options.url:
        import os

        return Client(discovery.named(options.url, os.environ.get(discovery.TOKEN)))
    if options.connect:
        return Client(discovery.wanted())
    try:
        return Client(discovery.find())
    except OutsideServer as error:
        if not getattr(options, "reads_only", False):
            raise
        from jupyter_gpu.kernel.rules.outside import note

        found = discovery.wanted()  # raises where there are several
        print(note(error.servers[0]), file=sys.stderr)
        return Client(found)


def gpus(options: argparse.Namespace) -> ServerGpus:
    """Return the `ServerGpus` of that server."""
    from jupyter_gpu.kernel.api import ServerGpus

    return ServerGpus(client(options))


def _priority(text: str) -> int | str:
    """Parse a priority for argparse, which shows the text of a ValueError."""
    from jupyter_gpu.kernel.arguments import ANY

    return text if text == ANY else int(text)
