"""``python -m jupyter_gpu_scheduler.workers --settings FILE``: the worker controller of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from jupyter_gpu.common.settings_file import SettingsError, read
from jupyter_gpu.kube.credentials import NoCredentials

from .process import run
from .settings import WorkerSettings

_log = logging.getLogger("jupyter_gpu_scheduler.workers")


async def _run_until_signal(settings: WorkerSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(settings, stop)


def main() -> int:
    """Run the controller; return 0 after SIGTERM, 1 when something broke, 2 for settings that can't be used."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_scheduler.workers", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", required=True, help="JSON, with the namespaces")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=os.environ.get("JUPYTER_GPU_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        asyncio.run(_run_until_signal(read(arguments.settings, WorkerSettings)))
    except (SettingsError, NoCredentials) as error:
        print(error, file=sys.stderr)
        return 2
    except Exception:
        _log.exception("The worker controller ends.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
