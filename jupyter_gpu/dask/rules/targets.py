"""Pure: where a connection between two processes of Dask leads, as the line says that goes before its first byte.

A *place* is the notebook's own node, or one of the workers of its pod. Each process has a port of its place.

    to a process            "w1:40123"
    to be used later on     "offer"       a connection that the notebook dialled, and that the worker may use
"""

from __future__ import annotations

import re
from typing import NamedTuple

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext

HERE = "here"
"""The place of the notebook."""
OFFER = b"offer\n"
MAX_LINE = 32
"""Bytes of a line."""
_TARGET = re.compile(rb"(here|w[1-9][0-9]{0,9}):([1-9][0-9]{0,4})\n")


class Target(NamedTuple):
    """A process of Dask, by its place and its port there."""

    place: str
    port: int

    def line(self) -> bytes:
        """Return the line that names it."""
        return f"{self.place}:{self.port}\n".encode()


def read_target(line: bytes) -> Target:
    """Read a line; raises `strict.FieldError`."""
    found = _TARGET.fullmatch(line)
    if found is None or int(found[2]) > 65535:
        raise strict.FieldError(gettext("The connection does not say where it leads."))
    return Target(found[1].decode(), int(found[2]))
