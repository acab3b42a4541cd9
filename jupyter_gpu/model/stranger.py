"""Programs that use a GPU that no server here gave them."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import strict
from .gpu import read_command

MAX_STRANGERS = 16
"""Most strangers of one GPU that are shown."""
_MAX_USER = 64


class Stranger(NamedTuple):
    """A process that uses a GPU without having been given it, with what is known of it."""

    pid: int
    """0 where it has none here."""
    command: str
    user: str | None = None
    """Name of the account that it runs as; None where it is not known."""

    @property
    def name(self) -> str:
        """Name to use in a sentence."""
        about = [f"process {self.pid}"] if self.pid else []
        about += [self.user] if self.user else []
        return f"{self.command} ({', '.join(about)})" if about else self.command

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        user = strict.printable(self.user, _MAX_USER) if self.user else None
        return {"pid": self.pid, "command": strict.printable(self.command, 256), "user": user}

    @classmethod
    def from_json(cls, value: Any, key: str = "stranger") -> Stranger:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            pid=strict.required(body, "pid", strict.integer(0, 2**31 - 1)),
            command=strict.required(body, "command", read_command),
            user=strict.optional(body, "user", strict.label(_MAX_USER)),
        )
