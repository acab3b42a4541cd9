"""Pure: the words between a program and the processes that it starts for Dask, each one line of JSON in a pipe.

    to a scheduler         {"schedule": {"certificate": "…", "pages": ["/…/….sock"]}}
    to a worker            {"work": {"certificate": "…", "scheduler": "tls://…", "name": "GPU-…", "path": ["/…"]}}
    from both, when ready  {"ready": {"address": "tls://127.0.0.1:40123"}}

``certificate`` has its secret key, too: all of them are processes of one program, and it goes through pipes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from jupyter_gpu.model import strict
from jupyter_gpu.remote.rules.control import Word

_TEXT = strict.text(200)
_CERTIFICATE = strict.text(8000)
_PATH = strict.list_of(strict.text(4096), 100)


@dataclass(frozen=True)
class Schedule(Word):
    """The first message to a scheduler."""

    certificate: str = field(repr=False)
    pages: tuple[str, ...] = ()
    """Where the socket of its pages will be; empty: nowhere."""

    kind = "schedule"
    reads: ClassVar = {"certificate": _CERTIFICATE, "pages": strict.list_of(strict.text(4096), 1)}


@dataclass(frozen=True)
class Work(Word):
    """The first message to a worker."""

    certificate: str = field(repr=False)
    scheduler: str
    name: str
    path: tuple[str, ...]
    """Where Python looks for modules."""

    kind = "work"
    reads: ClassVar = {"certificate": _CERTIFICATE, "scheduler": _TEXT, "name": _TEXT, "path": _PATH}


@dataclass(frozen=True)
class Ready(Word):
    """The answer of both, as soon as they can be used."""

    address: str

    kind = "ready"
    reads: ClassVar = {"address": _TEXT}
