"""The scheduler's accounts as they are kept: without what is shown nowhere, as they may be thousands. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpu.model.limits.account import Account, read_account
from jupyter_gpu.model.limits.effective import NO_LIMITS
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Sourced

from .day_hours import DayHours


def read(item: Mapping[str, Any]) -> Account | None:
    """Read a ``GpuAccount``, without the limits that follow from ``GpuLimit``; ``None``: its owner can't be read."""
    found = read_account(item)
    if found is None:
        return None
    owner, source = found.owner, found.max.source
    shared = replace(source, name=sys.intern(source.name), by=sys.intern(source.by), object=sys.intern(source.object))
    return replace(
        found,
        owner=Owner(owner.kind, sys.intern(owner.name), sys.intern(owner.hub)),
        max=Sourced(found.max.value, shared),
        limits=NO_LIMITS,
        hours=DayHours(found.hours),
    )
