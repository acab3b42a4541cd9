"""Exit codes, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_gpu.model import errors

if TYPE_CHECKING:
    from jupyter_gpu.model.status import Status

DONE, ERROR, USAGE, WAITING, DRAINING, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

EPILOG = (
    "Exit codes: 0 done; 1 error; 2 wrong usage; 3 waiting for free GPUs; 4 given back but still open "
    "somewhere; 5 no server, or outside of it; 130 Ctrl-C. With 3, 4 and 130 the request stands."
)
_BY_ERROR: tuple[tuple[type[errors.GpuError], int], ...] = (
    (errors.InvalidRequest, USAGE),
    (errors.NoCapacity, WAITING),
    (errors.Draining, DRAINING),
    (errors.ServerUnreachable, UNREACHABLE),
)


def of_error(error: errors.GpuError) -> int:
    """Return the exit code for an error."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), ERROR)


def of_status(status: Status) -> int:
    """Return the exit code for a call that did not wait."""
    from jupyter_gpu.model.status import Phase

    if status.settled:
        return DONE
    return DRAINING if status.phase is Phase.RELEASING else WAITING
