"""Numbers in ``allocated`` beside a ticket, which the scheduler alone writes: they count as long as the ticket."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model import strict
from jupyter_gpu.model.annotations import Allocated

_read = strict.integer(0, strict.MAX_GENERATION)


def beside_ticket(allocated: Allocated | None, key: str) -> int | None:
    """Return the number; ``None``: the pod has no ticket, or the number was not recorded or can't be read."""
    if allocated is None or allocated.ticket is None:
        return None
    try:
        return _read(allocated.extra.get(key), key)
    except strict.FieldError:
        return None


def without(allocated: Allocated, key: str) -> Allocated:
    """Return the record without the number; the same object where it has none."""
    if key not in allocated.extra:
        return allocated
    return replace(allocated, extra={name: value for name, value in allocated.extra.items() if name != key})
