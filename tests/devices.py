"""Device numbers of simulated GPUs in tests, different for each of the workers that run tests side by side.

Processes that have a GPU open are found by its device number, on the whole machine, so processes of another worker
would count as holders of GPUs with the same numbers.
"""

from __future__ import annotations

import os

EACH = 4
"""Devices of a machine with simulated GPUs."""
LOWEST, HIGHEST = 44, 60
"""Range of first devices: those below belong to demos and to servers without a setting, and there are none above."""
CLUSTERS = 2
"""Number of clusters of two nodes for which there are numbers, from the lowest, where no other tests run."""


def worker() -> int:
    """Return the number of this worker; its child processes get the same."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def first_minor() -> int:
    """Return the first device number of this worker's virtual consoles."""
    return HIGHEST - EACH * (worker() % ((HIGHEST - LOWEST) // EACH + 1))


def first_of_cluster() -> int:
    """Return the first device number of a cluster with the product: the audits of two would end each other's processes.

    The devices of two workers differ from it and from those of another cluster. A cluster beside three workers gets
    other numbers from `scripts/lib/suite.py`.
    """
    return LOWEST - EACH + 2 * EACH * (worker() % CLUSTERS)
