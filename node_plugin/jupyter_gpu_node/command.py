"""The command ``jupyter-gpu-node``: ``run`` is the node plugin, ``top`` shows the use of this node's time shares."""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = """usage: jupyter-gpu-node COMMAND [OPTION]...

commands:
  run   the node plugin, one on each node that has GPUs
  top   who uses the time shares of this machine's GPUs, live

'jupyter-gpu-node COMMAND --help' tells the options of each."""


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status. What a command does not need is not loaded."""
    command, *rest = (sys.argv[1:] if words is None else list(words)) or [""]
    if command == "run":
        from .__main__ import main as run

        return run(rest)
    if command == "top":
        from jupyter_gpu_node.top.top import main as top

        return top(rest)
    asked = command in ("-h", "--help")
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
