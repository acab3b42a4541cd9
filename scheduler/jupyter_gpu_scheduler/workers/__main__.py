"""``python -m jupyter_gpu_scheduler.workers --settings FILE``: the worker controller of a cluster."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from jupyter_gpu.common.settings_file import read
from jupyter_gpu.kube.command import serve

from .process import run
from .settings import WorkerSettings

_log = logging.getLogger("jupyter_gpu_scheduler.workers")


def main() -> int:
    """Run the controller; return its exit status (`serve`)."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_scheduler.workers", description=__doc__)
    parser.add_argument("--settings", type=Path, metavar="FILE", required=True, help="JSON, with the namespaces")
    path = parser.parse_args().settings
    return serve(lambda stop: run(read(path, WorkerSettings), stop), _log, "The worker controller ends.")


if __name__ == "__main__":
    sys.exit(main())
