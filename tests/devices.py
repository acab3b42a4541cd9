"""Which devices simulated GPUs of these tests are: of each of the workers that run tests side by side others.

Who has a GPU open is found by the number of its device, on the whole machine: what another worker's processes have open
would be in the way of GPUs with the same numbers.
"""

from __future__ import annotations

import os

EACH = 4
"""Devices of a worker."""
LOWEST, HIGHEST = 44, 60
"""First devices: below are those of demos and of servers with nothing set, above there are none."""


def first_minor() -> int:
    """Of this worker's virtual consoles; its child processes are told the same."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return HIGHEST - EACH * (number % ((HIGHEST - LOWEST) // EACH + 1))
