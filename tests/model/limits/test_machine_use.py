"""The file with a machine's GPUs and pods, for the service of a hub."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.machine_use import MachinePod, MachineUse, read_use
from jupyter_gpu.model.strict import FieldError

GPU = Gpu("g0", 0, "A100", 2**30, healthy=True)
POD = {"uid": "u", "user": "ann", "pid": 1, "ended": False}


def text(**changes: Any) -> bytes:
    """Return a file with these changes."""
    body = {"format": 1, "boot": "b", "counted": 1, "note": "", "gpus": [GPU.to_json()], "pods": [POD]}
    return json.dumps({**body, **changes}).encode()


def test_file_keeps_what_was_written() -> None:
    """Pods with all their states, and those with none."""
    shares = (GpuShare("g0", 500),)
    pods = (
        MachinePod("a", "ünï", 7, False, Requested(1, Wish(500)), Allocated(1, shares), Attached(1, shares)),
        MachinePod("b", "a/b", 8, True),
    )
    for use in (MachineUse((GPU,), "", pods), MachineUse((), "The driver does not answer.")):
        found = read_use(use.encode("boot", 12.3456).encode())
        assert (found.use, found.boot, found.counted) == (use, "boot", 12.346)


@pytest.mark.parametrize(
    "bad",
    [
        *(b"{", b"[]", text(format=2), text(boot=None), text(counted=-1), text(gpus=[{}]), text(pods=None)),
        *(text(note=None), text(pods=[{**POD, "user": ""}]), text(pods=[{**POD, "pid": 0}])),
        text(pods=[{**POD, "allocated": {"shares": 1}}]),
    ],
)
def test_file_that_is_none_is_refused(bad: bytes) -> None:
    """No part of it counts."""
    with pytest.raises(FieldError):
        read_use(bad)
