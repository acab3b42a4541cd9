"""Which devices simulated GPUs of these tests are: of each of the workers that run tests side by side others.

Who has a GPU open is found by the number of its device, on the whole machine: what another worker's processes have open
would be in the way of GPUs with the same numbers.
"""

from __future__ import annotations

import os

EACH = 4
"""Devices of a machine with simulated GPUs."""
LOWEST, HIGHEST = 44, 60
"""First devices: below are those of demos and of servers with nothing set, above there are none."""
CLUSTERS = 2
"""How many clusters of two nodes there are numbers for; from the lowest, and demos do not run beside tests."""


def worker() -> int:
    """Number of this worker; its child processes are told the same."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def first_minor() -> int:
    """Of this worker's virtual consoles."""
    return HIGHEST - EACH * (worker() % ((HIGHEST - LOWEST) // EACH + 1))


def first_of_cluster() -> int:
    """Of the first node of a cluster on which the product is installed: the audit of each ends the other's processes.

    Side by side with it and with another one, the devices of two workers are others.
    """
    return LOWEST - EACH + 2 * EACH * (worker() % CLUSTERS)
