"""``python -m jupyter_gpu_scheduler --settings FILE``: the scheduler of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path

from jupyter_gpu.common.settings_file import SettingsError, read
from jupyter_gpu.kube.credentials import NoCredentials

from .process import run
from .settings import SchedulerSettings

_log = logging.getLogger("jupyter_gpu_scheduler")


async def _run_until_signal(settings: SchedulerSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(settings, stop)


def main() -> int:
    """Run the scheduler; return 0 after SIGTERM, 1 when something broke, 2 for settings that can't be used."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_scheduler", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON; without it, the defaults")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=os.environ.get("JUPYTER_GPU_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        settings = read(arguments.settings, SchedulerSettings) if arguments.settings else SchedulerSettings()
        gc.freeze()  # garbage collection over the imported modules would stop a resize for 30 ms
        asyncio.run(_run_until_signal(settings))
    except (SettingsError, NoCredentials) as error:
        print(error, file=sys.stderr)
        return 2
    except Exception:
        _log.exception("The scheduler ends.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
