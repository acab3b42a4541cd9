"""The arbiter of one machine: ``python -m jupyter_gpu.backends.local.sharing STATE LOCK``, started by a server."""

import sys

from .arbiter import main

sys.exit(main(sys.argv[1:]))
