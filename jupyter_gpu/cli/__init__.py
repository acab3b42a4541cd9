# PYTHON_ARGCOMPLETE_OK
"""``jupyter gpu status | resize 2 | release | …``, for terminals and scripts. `parser` names all commands.

Exit codes: 0 done, 1 error, 2 wrong usage, 3 waiting for free GPUs, 4 given back but still open somewhere,
5 no server, 130 stopped with Ctrl-C. Codes 3, 4 and 130 leave the request standing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from jupyter_gpu.model.errors import GpuError

from . import codes, completion, parser
from .output import say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of the command line; return the exit code."""
    commands = parser.parser()
    completion.answer(commands)
    given = commands.parse_args(arguments)
    try:
        return int(given.run(given))
    except GpuError as error:
        if getattr(given, "json", False):
            say(error.to_json())
        else:
            print(error, file=sys.stderr)
        return codes.of_error(error)
    except KeyboardInterrupt:
        return codes.INTERRUPTED
