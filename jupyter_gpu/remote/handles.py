"""Handles of values that stayed in a worker, by name: ``gpu.remote.model.get()`` brings one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpu.model.quantity import format_bytes
from jupyter_gpu.remote import codec


class WorkerGone(RuntimeError):
    """The error of a handle whose worker has ended: the value is lost."""


class Handle:
    """A value in a worker: ``where`` the worker is, its ``size`` in bytes or None, and the name of its ``type``."""

    def __init__(self, name: str, where: str, kind: str, size: int | None, fetch: Callable[[str], Any]) -> None:
        self.name, self.where, self.type, self.size = name, where, kind, size
        self._fetch: Callable[[str], Any] | None = fetch

    def get(self) -> Any:
        """Return the value, brought here; raises WorkerGone, and what the worker says if it cannot be sent."""
        if self._fetch is None:
            raise WorkerGone(f"{self.name} was in the worker on {self.where}, which has ended: make it again.")
        return self._fetch(self.name)

    def lose(self) -> None:
        """Note that the worker has ended."""
        self._fetch = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrive in the worker as the value itself."""
        return codec.here, ("value", self.name)

    def __repr__(self) -> str:
        size = "" if self.size is None else f", {format_bytes(self.size)}"
        state = "" if self._fetch else ", lost: the worker has ended"
        return f"<{self.name}: {self.type} on {self.where}{size}{state}>"


class Handles:
    """The handles of a kernel."""

    def __init__(self) -> None:
        self.by_name: dict[str, Handle] = {}

    def add(self, handle: Handle) -> None:
        """Keep a handle in place of an earlier one of that name."""
        self.by_name[handle.name] = handle

    def lose(self, where: str) -> None:
        """Note that the worker at a place has ended."""
        for handle in self.by_name.values():
            if handle.where == where:
                handle.lose()


class Remote:
    """The values that stayed in workers, as attributes; ``del gpu.remote.model`` ends one there."""

    __handles: Handles
    __drop: Callable[[Handle], None]

    def __init__(self, handles: Handles, drop: Callable[[Handle], None]) -> None:
        object.__setattr__(self, "_Remote__handles", handles)
        object.__setattr__(self, "_Remote__drop", drop)

    def __getattr__(self, name: str) -> Handle:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __getitem__(self, name: str) -> Handle:
        known = self.__handles.by_name
        if name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "nothing stayed there"
            raise KeyError(f"No worker has kept {name}: {there}.")
        return known[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set here: assign it in a cell that runs in the worker.")

    def __delattr__(self, name: str) -> None:
        self.__drop(getattr(self, name))
        del self.__handles.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.__handles.by_name))

    def __len__(self) -> int:
        return len(self.__handles.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self.__handles.by_name

    def __dir__(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return "\n".join(map(repr, (self[name] for name in self))) or "<nothing stayed in a worker>"
