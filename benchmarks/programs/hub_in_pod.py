"""Runs the hub's service as in a pod, which needs no kubeconfig and so no client that reads one.

python -m benchmarks.programs.hub_in_pod API_SERVER --settings FILE
"""

import sys
from pathlib import Path

from jupyter_gpu.kube import credentials
from jupyter_gpu.kube.credentials import Credentials

SERVER = sys.argv.pop(1)


def _load(path: Path | None = None) -> Credentials:
    del path
    return Credentials(server=SERVER, namespace="bench")


credentials.load = _load
from jupyter_gpu_hub.__main__ import main  # noqa: E402 - it must find the other credentials

sys.exit(main())
