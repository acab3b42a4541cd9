"""Live wholly or not at all: whatever fails in any task or thread ends the process.

The kubelet waits for an answer of ``Allocate`` without end, and does nothing else meanwhile. So a process of which only a
part works is worse than a dead one, which the kubelet notices at once and the DaemonSet starts anew.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn


async def supervise(tasks: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run all of ``tasks``, named, until SIGTERM or SIGINT; then cancel them, wait for them, and return.

    The first of them that raises or ends by itself ends the process (:func:`die`), as does an error in any other task
    or thread that nobody handles, and an event loop that stands still.
    """
    raise NotImplementedError


def alive() -> str:
    """What is wrong with this process, in plain words; empty if it is well (liveness)."""
    raise NotImplementedError


def die(why: str, error: BaseException | None = None) -> NoReturn:
    """Write down why, and end the process at once, whatever its other threads do."""
    raise NotImplementedError
