"""The command line: one module for each group of commands. Each has ``add``, which adds its parsers. The default
``run`` of a parser is a function that runs the command and returns the exit code.
"""

from __future__ import annotations

import argparse

from . import completion, doctor, environment, limit_commands, machine, request, usage, wait, watch, workers
from .codes import EPILOG


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="jupyter gpu",
        description="Change how many GPUs the notebooks of this Jupyter server have, while they run.",
        epilog=EPILOG,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for group in (request, wait, watch, workers, machine, usage, environment, limit_commands, doctor, completion):
        group.add(commands)
    return top
