"""Messages to a program that belongs to no Jupyter server: which servers run, what it would get, how to choose one.

Examples are cron jobs, notebooks run by papermill, kernels of another editor, and a terminal beside Jupyter. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_WAYS = "gpu.connect(url, token), 'jupyter gpu … --url', or JUPYTER_GPU_URL"
_FEW = 5
NONE = (
    "No Jupyter server was found that has jupyter-gpu. Run this in a notebook or a terminal of one, start one with "
    f"'jupyter lab', or say which one it is: {_WAYS}."
)
GONE = (
    "The Jupyter server that this program belongs to does not run any more. Start it again in the same folder, or say "
    f"which one to use instead: gpu.connect() for the one that runs here, {_WAYS}."
)


class RunningServer(NamedTuple):
    """A server that runs here, as people know it."""

    url: str
    folder: str
    container: bool
    """Whether its device rules hold all programs of its container."""

    def __str__(self) -> str:
        return f"{self.url} (folder {self.folder})" if self.folder else self.url


def none(sudo_user: str) -> str:
    """Return the error if no server runs; ``sudo_user`` is the user that called sudo, if any."""
    return f"{NONE} It runs by sudo: servers of {sudo_user!r} are found without sudo." if sudo_user else NONE


def message(servers: Sequence[RunningServer]) -> str:
    """Return the error if ``servers`` run, at least one."""
    names = "; ".join(map(str, servers[:_FEW])) + (f"; and {len(servers) - _FEW} more" if len(servers) > _FEW else "")
    if len(servers) == 1:
        there = f"One runs here: {names}. To use its GPUs, say so: gpu.connect(), 'jupyter gpu … --connect', or"
        ways = f"{there} JUPYTER_GPU_URL."
    else:
        there = f"{len(servers)} run here: {names}. To use the GPUs of one, say which: gpu.connect(url),"
        ways = f"{there} 'jupyter gpu … --url', or JUPYTER_GPU_URL."
    return f"This program was not started by a Jupyter server that has jupyter-gpu. {ways} {_gets(servers)}"


def note(server: Mapping[str, str]) -> str:
    """Return the note for a program that only reads; ``server`` as `OutsideServer` names it."""
    known = RunningServer(server["url"], server["folder"], False)
    return f"Of the server at {known}. This terminal is outside of it; to change its GPUs from here, add --connect."


def _gets(servers: Sequence[RunningServer]) -> str:
    shared = "They are the server's: its notebooks use them, too, and they stay taken when this program ends."
    if all(server.container for server in servers):
        return f"{shared} CUDA_VISIBLE_DEVICES is not set here."
    return (
        f"{shared} Nothing guards this program: device rules do not hold it, CUDA_VISIBLE_DEVICES is not set here, and "
        "a GPU that it opens shows as used by a program outside."
    )
