"""`@gpu.task(2)`: a function whose calls run in a process that sees the GPUs of now."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from jupyter_gpu.kernel.api import ServerGpus

P = ParamSpec("P")
R = TypeVar("R")


class Task(Generic[P, R]):
    """A function that `gpu.run` runs when it is called; ``local`` is the function itself."""

    def __init__(self, gpu: ServerGpus, function: Callable[P, R], gpus: float | str) -> None:
        self._gpu, self.local, self.gpus = gpu, function, gpus
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **named: P.kwargs) -> R:
        """Call the function in a process that sees the GPUs of now."""
        result: R = self._gpu.run(self.local, *args, gpus=self.gpus, **named)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrive in another process as a task of that process."""
        return made, (self.local, self.gpus)

    def __repr__(self) -> str:
        return f"<task with {self.gpus} GPUs: {getattr(self.local, '__qualname__', self.local)}>"


def made(function: Callable[P, R], gpus: float | str) -> Task[P, R]:
    """Return a task of this process."""
    from jupyter_gpu.kernel.api import gpu

    return Task(gpu, function, gpus)
