"""``jupyter gpu status | machine | resize 2 | release``, for terminals and scripts.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 waiting for free GPUs, 4 given back but still open somewhere,
5 no server, 130 stopped with Ctrl-C. Codes 3, 4 and 130 leave the request standing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from . import discover, machine_report
from .kernel import Gpu
from .model.errors import Draining, GpuError, InvalidRequest, NoCapacity, ServerUnreachable
from .model.status import Phase
from .report import GpuStatus

DONE, ERROR, USAGE, WAITING, DRAINING, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_OPTIONS = ("each", "memory", "model", "topology", "priority")
"""Of a request; those that are not named stay as they are."""
_CODES: tuple[tuple[type[GpuError], int], ...] = (
    (InvalidRequest, USAGE),
    (NoCapacity, WAITING),
    (Draining, DRAINING),
    (ServerUnreachable, UNREACHABLE),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        gpu = Gpu()
        if options.url:
            gpu.connect(options.url, os.environ.get(discover.TOKEN))
        status = machine_report.run(gpu, options.json) if options.command == "machine" else _do(options, gpu)
    except GpuError as error:
        if options.json:
            print(json.dumps(error.to_json(), ensure_ascii=False))
        else:
            print(error, file=sys.stderr)
        return next((code for kind, code in _CODES if isinstance(error, kind)), ERROR)
    except KeyboardInterrupt:
        return INTERRUPTED
    try:
        print(_json(status) if options.json and isinstance(status, GpuStatus) else status, flush=True)
    except BrokenPipeError:
        sys.stderr.close()  # the reader, such as `head`, has seen enough
    return code_of(status) if isinstance(status, GpuStatus) and options.command != "status" else DONE


def code_of(status: GpuStatus) -> int:
    """Exit code of a call that did not wait."""
    if status.settled:
        return DONE
    return DRAINING if status.phase is Phase.RELEASING else WAITING


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    top = argparse.ArgumentParser(
        prog="jupyter gpu",
        description="Change how many GPUs the notebooks of this Jupyter server have, while they run.",
        epilog="Exit codes: 0 done; 1 error; 2 wrong usage; 3 waiting for free GPUs; 4 given back but still open "
        "somewhere; 5 no server; 130 Ctrl-C. With 3, 4 and 130 the request stands.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="status | machine | resize | release")
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument(
        "--url",
        metavar="URL",
        help="of the server, as Jupyter prints it; the token may be in JUPYTER_GPU_TOKEN instead",
    )
    output.add_argument("--json", action="store_true", help="print JSON, for scripts; errors, too")
    waiting = argparse.ArgumentParser(add_help=False)
    waiting.add_argument("--no-wait", action="store_true", help="return at once")
    waiting.add_argument("--timeout", type=float, metavar="SECONDS", help="stop waiting after this time")
    commands.add_parser("status", parents=[output], help="say what is so now")
    machine_report.add_command(commands, output)
    resize = commands.add_parser(
        "resize",
        parents=[output, waiting],
        help="have this many GPUs",
        epilog="Options that are not named stay as they were asked for last; release takes all of them back.",
    )
    resize.add_argument("amount", help="2, 0.5 or 500m")
    resize.add_argument("--each", metavar="SHARE", help="cut into shares of this size, each on another GPU")
    resize.add_argument("--memory", metavar="SIZE", help="GPU memory of each share, such as 20GiB")
    resize.add_argument("--model", action="append", metavar="NAME", help="an acceptable model; may be repeated")
    resize.add_argument("--topology", choices=("any", "island", "switch"), help="how the GPUs must be connected")
    resize.add_argument("--priority", type=int, metavar="0-9", help="higher is served first")
    commands.add_parser("release", parents=[output, waiting], help="give all GPUs back")
    return top


def _do(options: argparse.Namespace, gpu: Gpu) -> GpuStatus:
    if options.command == "status":
        return gpu.status()
    if options.command == "release":
        return gpu.release(wait=not options.no_wait, timeout=options.timeout)
    named = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    return gpu.resize(options.amount, **named, wait=not options.no_wait, timeout=options.timeout)


def _json(status: GpuStatus) -> str:
    body = {**status.view.to_json(), "sentence": status.sentence}
    return json.dumps(body, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
