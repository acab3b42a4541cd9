"""Limits as the service keeps them."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu_hub.rules.packed import pack

from .builders import known

ANN = {"kind": "User", "name": "ann"}


def test_recorded_changes_that_cannot_be_read_are_none() -> None:
    """The limit counts all the same: its changes are shown, and decide nothing."""
    change = {"by": "root", "at": "2026-05-03T10:00:00Z", "from": {}, "to": {"max": 2}}
    whole = known(ANN, changes=[change], max=2)
    assert [each.by for each in whole.changes] == ["root"]
    broken = replace(whole, recorded=pack(b'[{"by"'))
    assert broken.changes == ()
    assert broken.limit == whole.limit
