"""``python -m jupyter_gpu_scheduler --settings FILE``: the scheduler of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
from pathlib import Path

from jupyter_gpu.common.settings_file import read
from jupyter_gpu.kube.command import serve

from .process import run
from .settings import SchedulerSettings

_log = logging.getLogger("jupyter_gpu_scheduler")


def main() -> int:
    """Run the scheduler; return its exit status (`serve`)."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_scheduler", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON; without it, the defaults")
    arguments = parser.parse_args()

    async def schedule(stop: asyncio.Event) -> None:
        settings = read(arguments.settings, SchedulerSettings) if arguments.settings else SchedulerSettings()
        gc.freeze()  # garbage collection over the imported modules would stop a resize for 30 ms
        await run(settings, stop)

    return serve(schedule, _log, "The scheduler ends.")


if __name__ == "__main__":
    sys.exit(main())
