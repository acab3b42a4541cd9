"""`@gpu.task(2)`: a function whose calls run in a process that sees the GPUs of now; and what makes such calls.

`jupyter_gpu.remote` makes them. It stands above this folder, which knows the interface alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    import distributed

    from jupyter_gpu.kernel.api import ServerGpus
    from jupyter_gpu.model.view import View

P = ParamSpec("P")
R = TypeVar("R")


class Calls(Protocol):
    """Calls of functions in other processes; the methods are those of `ServerGpus`."""

    remote: Any
    """The values that stayed there, by name."""

    def cell(self, code: Any, gpus: float | str, timeout: float | None, held: tuple[View, View] | None = None) -> None:
        """Run a cell; ``held``: its GPUs are held, and these are the views before that and now."""

    def before_here(self, names: Callable[[], Any]) -> None:
        """Tell of values that other processes have newer, before a cell of some names runs in this one."""

    def run(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], gpus: float | str
    ) -> Any:
        """Call a function and return its result."""

    def keep(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        gpus: float | str,
    ) -> Any:
        """Call a function whose result stays there; return a handle."""

    async def arun(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any], gpus: float | str
    ) -> Any:
        """Do the same without blocking the event loop."""

    def map(
        self, function: Callable[..., Any], items: Iterable[Any], gpus: float | str, return_exceptions: bool
    ) -> list[Any]:
        """Call a function with each item."""

    def make_room(self, milli: int) -> None:
        """End processes that rest and may have GPUs open, before the server has only some milli."""


class Clients(Protocol):
    """Dask clients whose workers are the attached GPUs."""

    def client(self) -> distributed.Client:
        """Return a new client."""

    def make_room(self, milli: int) -> None:
        """End workers that may have GPUs open, before the server has only some milli."""


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
