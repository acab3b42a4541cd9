"""``jupyter-gpu-hub --settings FILE``: the hub's service of GPU limits."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from jupyter_gpu.common.settings_file import read
from jupyter_gpu.kube.command import serve

from .process import run
from .settings import HubServiceSettings

_log = logging.getLogger("jupyter_gpu_hub")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service; return its exit status (`serve`).

    Standard output has one line of JSON for each change of a limit and nothing else; the log is on standard error.
    """
    parser = argparse.ArgumentParser(prog="jupyter-gpu-hub", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON; without it, the defaults")
    path = parser.parse_args(arguments).settings

    async def keep(stop: asyncio.Event) -> None:
        await run(read(path, HubServiceSettings) if path else HubServiceSettings(), stop)

    return serve(keep, _log, "The service ends.")


if __name__ == "__main__":
    sys.exit(main())
