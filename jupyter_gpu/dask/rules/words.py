"""Pure: the words between a program and the processes that it starts for Dask, each one line of JSON in a pipe.

    to a scheduler         {"schedule": {"certificate": "…", "scheme": "gpu1f3a", "pages": ["/…/….sock"]}}
    to a worker            {"work": {"certificate": "…", "scheduler": "gpu1f3a://here:40123", "name": "GPU-…",
                                     "path": ["/…"], "place": "here", "gateway": 40124,
                                     "visible": {"CUDA_VISIBLE_DEVICES": "GPU-…"}}}
    to one that keeps      {"keep": {"certificate": "…", "scheduler": "gpu1f3a://here:40123", "gateway": 40124}}
    from all, when ready   {"ready": {"address": "gpu1f3a://here:40125", "gateway": 40124}}

A kernel in the pod of a worker is the parent of the Dask workers there. It is told, as the value of a call,

    to serve a gateway     {"attend": {"certificate": "…", "place": "w1"}}     ─► {"attending": {"port": 47134}}
    to start a worker      {"work": …}                                         ─► {"living": {"names": ["GPU-…"]}}
    to wait for it         {"await": {"name": "GPU-…"}}                        ─► {"ready": …}
    to end workers         {"drop": {"names": ["GPU-…"]}}, names or none       ─► {"living": {"names": ["GPU-…"]}}

``certificate`` has its secret key, too: all of them are processes of one user. It goes through pipes and over
connections with pinned keys only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jupyter_gpu.common.rules.visible import CHOICES
from jupyter_gpu.model import strict
from jupyter_gpu.remote.rules.control import Word

_TEXT = strict.text(200)
_CERTIFICATE = strict.text(8000)
_PORT = strict.integer(0, 65535)
_NAMES = strict.list_of(_TEXT, 256)
_PATH = strict.list_of(strict.text(4096), 100)
_VALUE = strict.label(1000)


def _read_visible(value: Any, key: str) -> dict[str, str]:
    body = strict.an_object(value, key)
    strict.no_unknown(body, CHOICES)
    return {name: _VALUE(text, name) for name, text in body.items()}


@dataclass(frozen=True)
class Schedule(Word):
    """The first message to a scheduler."""

    certificate: str = field(repr=False)
    scheme: str
    pages: tuple[str, ...] = ()
    """The path of the socket of its pages; empty: there is none."""

    kind = "schedule"
    reads: ClassVar = {
        "certificate": _CERTIFICATE,
        "scheme": _TEXT,
        "pages": strict.list_of(strict.text(4096), 1),
    }


@dataclass(frozen=True)
class Work(Word):
    """The first message to a worker."""

    certificate: str = field(repr=False)
    scheduler: str
    name: str
    path: tuple[str, ...]
    """The folders in which Python looks for modules; empty: its own, as on another node."""
    place: str
    gateway: int
    """The port of the gateway of its node; 0: its parent fills it in."""
    visible: Mapping[str, str] = field(hash=False)
    """Values of ``CUDA_VISIBLE_DEVICES`` and its kin."""

    kind = "work"
    reads: ClassVar = {
        "certificate": _CERTIFICATE,
        "scheduler": _TEXT,
        "name": _TEXT,
        "path": _PATH,
        "place": _TEXT,
        "gateway": _PORT,
        "visible": _read_visible,
    }

    @property
    def scheme(self) -> str:
        """The scheme of all addresses."""
        return self.scheduler.partition("://")[0]


@dataclass(frozen=True)
class Keep(Word):
    """The first message to the process that keeps results without a GPU."""

    certificate: str = field(repr=False)
    scheduler: str
    gateway: int

    kind = "keep"
    reads: ClassVar = {"certificate": _CERTIFICATE, "scheduler": _TEXT, "gateway": _PORT}

    @property
    def scheme(self) -> str:
        """The scheme of all addresses."""
        return self.scheduler.partition("://")[0]


@dataclass(frozen=True)
class Ready(Word):
    """The answer of all, as soon as they can be used."""

    address: str
    gateway: int = 0
    """The port of the gateway that the scheduler has; 0 of others."""

    kind = "ready"
    reads: ClassVar = {"address": _TEXT, "gateway": _PORT}


@dataclass(frozen=True)
class Attend(Word):
    """The first word to a kernel of another node."""

    certificate: str = field(repr=False)
    place: str

    kind = "attend"
    reads: ClassVar = {"certificate": _CERTIFICATE, "place": _TEXT}


@dataclass(frozen=True)
class Attending(Word):
    """The answer to it: the port of its gateway, for the notebook."""

    port: int

    kind = "attending"
    reads: ClassVar = {"port": strict.integer(1, 65535)}


@dataclass(frozen=True)
class Await(Word):
    """The wait for a worker that starts there."""

    name: str

    kind = "await"
    reads: ClassVar = {"name": _TEXT}


@dataclass(frozen=True)
class Drop(Word):
    """The end of some workers there, by name, or of none."""

    names: tuple[str, ...]

    kind = "drop"
    reads: ClassVar = {"names": _NAMES}


@dataclass(frozen=True)
class Living(Word):
    """The answer to it: the workers there that live."""

    names: tuple[str, ...]

    kind = "living"
    reads: ClassVar = {"names": _NAMES}
