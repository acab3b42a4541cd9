"""The way to each worker of a server, tried: over the network, with the keys of both ends. Nothing is changed there."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jupyter_gpu.doctor.rules.ways import Tried, Way
from jupyter_gpu.model.errors import GpuError

if TYPE_CHECKING:
    from jupyter_gpu.kernel.client import Client
    from jupyter_gpu.remote.first_process import Questions, WorkerAddress

_PATIENCE = 5.0
"""Seconds that a worker may take."""
_PACKAGES = ("cloudpickle", "cryptography", "ipykernel", "jupyter_client", "zmq")
"""Modules of the extra ``remote``."""
_NOBODY = "doctor"
"""A kernel that no notebook has: its end is asked for, and answered."""


def try_ways(client: Client) -> Tried:
    """Ask each worker that the server says can be reached."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if set(missing) - {"cryptography"}:
        return Tried(missing=missing, untried="packages are missing.")
    from jupyter_gpu.kernel.client import Call
    from jupyter_gpu.remote.first_process import read_ways

    try:
        addresses = client.exchange(Call("GET", "workers")).ask(read_ways)
    except GpuError:
        return Tried(missing=missing, untried="run this in a terminal of the server, which alone gets its keys.")
    return Tried([_try(worker, address) for worker, address in addresses.items()], missing)


def _try(worker: str, address: WorkerAddress) -> Way:
    from jupyter_gpu.remote.first_process import questions
    from jupyter_gpu.remote.rules.control import Kill

    begin = time.monotonic()
    try:
        with questions(address, _PATIENCE) as asking:
            asking.ask(Kill(_NOBODY))
            passed = time.monotonic() - begin
            return Way(worker, passed, unlike=_unlike(asking))
    except GpuError as error:
        return Way(worker, trouble=str(error))


def _unlike(asking: Questions) -> str:
    """Return why this Python and its packages do not go with the worker's; empty if they do, or it does not say."""
    from jupyter_gpu.remote import PYTHON, versions
    from jupyter_gpu.remote.errors import WorkerRefused
    from jupyter_gpu.remote.rules import packages
    from jupyter_gpu.remote.rules.control import Check, Checked, wrong_python

    try:
        there = asking.ask(Check())
    except WorkerRefused:  # it is older than the word
        return ""
    assert isinstance(there, Checked)
    return wrong_python(there.python, PYTHON) or packages.refusal(versions.installed(), there.packages)
