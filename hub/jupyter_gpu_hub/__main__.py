"""``jupyter-gpu-hub --settings FILE``: the hub's service of GPU limits."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from jupyter_gpu.common.settings_file import SettingsError, read
from jupyter_gpu.kube.credentials import NoCredentials

from .process import run
from .settings import HubServiceSettings

_log = logging.getLogger("jupyter_gpu_hub")


async def _until_told(settings: HubServiceSettings) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(settings, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 after SIGTERM, 1 when something broke, 2 for settings that can't be used.

    Standard output has one line of JSON for each change of a limit and nothing else; the log is on standard error.
    """
    parser = argparse.ArgumentParser(prog="jupyter-gpu-hub", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", help="JSON; without it, the defaults")
    given = parser.parse_args(arguments)
    logging.basicConfig(
        level=os.environ.get("JUPYTER_GPU_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        settings = read(given.settings, HubServiceSettings) if given.settings else HubServiceSettings()
        asyncio.run(_until_told(settings))
    except (SettingsError, NoCredentials) as error:
        print(error, file=sys.stderr)
        return 2
    except Exception:
        _log.exception("The service ends.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
