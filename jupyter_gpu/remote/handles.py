"""Handles of values that stayed in a worker, by name: ``gpu.remote.model.get()`` brings one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.quantity import format_bytes
from jupyter_gpu.remote import codec
from jupyter_gpu.remote.errors import WorkerLost


class Handle(codec.Elsewhere):
    """A value in a worker: ``where`` the worker is, its ``size`` in bytes or None, and the name of its ``type``."""

    def __init__(
        self,
        name: str,
        where: str,
        kind: str,
        size: int | None,
        fetch: Callable[[str], Any],
        drop: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name, self.where, self.type, self.size = name, where, kind, size
        self._fetch: Callable[[str], Any] | None = fetch
        self._drop = drop

    def get(self) -> Any:
        """Return the value, brought here; raises `WorkerLost`, and what the worker says if it cannot be sent."""
        if self._fetch is None:
            raise WorkerLost(
                gettext("%1 was in the worker on %2, which has ended: make it again.", self.name, self.where)
            )
        return self._fetch(self.name)

    def drop(self) -> None:
        """Delete the value there."""
        if self._fetch is not None:
            self._drop(self.name)
            self._fetch = None

    @property
    def is_lost(self) -> bool:
        """Whether the worker has ended."""
        return self._fetch is None

    def lose(self) -> None:
        """Note that the worker has ended."""
        self._fetch = None

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


class Remote:
    """The values that stayed in workers, as attributes; ``del gpu.remote.model`` ends one there."""

    __handles: Handles

    def __init__(self, handles: Handles) -> None:
        object.__setattr__(self, "_Remote__handles", handles)

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
        getattr(self, name).drop()
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
