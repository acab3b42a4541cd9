"""A copy of objects of the API server, kept by list and watch; every change is reported once and in order.

After a cut connection a watch continues from the last version that was reported. Only if the server no longer has that
version (410) are all objects listed again; those that vanished meanwhile are reported as removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from jupyter_gpu.kube.rules import objects

from .client import PAGE, SILENCE, Trim, WatchEvent
from .errors import Gone, KubeError, NotFound
from .object_store import ObjectStore

FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
"""Seconds between attempts, at first and at most: doubling, with jitter so that not all clients come at once."""
SHORT = 1.0
"""Seconds: a watch that ends sooner counts as a failure."""

_log = logging.getLogger(__name__)

ChangeKind = Literal["added", "changed", "removed"]
_KINDS: Mapping[str, ChangeKind] = {"ADDED": "added", "MODIFIED": "changed", "DELETED": "removed"}


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object. ``object`` is its new state; of a removed one, the last that was seen."""

    kind: ChangeKind
    object: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects below one path of the API that are watched, and how much of each is kept."""

    path: str
    labels: str = ""
    """Label selector; empty: all objects."""
    fields: str = ""
    """Field selector; empty: all objects."""
    trim: Trim | None = None
    """Makes smaller what is kept and reported; uid, name and resource version must stay."""
    optional: bool = False
    """Whether the kind may be one that the server does not have; then there are no objects (`Reflector.absent`)."""
    page: int = PAGE
    """Objects that are asked for at once, where they are listed page by page."""


class Reflector:
    """A copy of the selected objects, which reports each change, in order.

    ``on_change`` is called on the event loop and must not fail: an exception ends `run`, because a copy that missed a
    change is useless. ``on_trouble`` is called with the reason when the server cannot be heard, and
    with ``""`` when it can again. ``newest``: begin with the newest state and page by page, rather than with the
    server's cache. ``silence``: seconds without a word after which a watch is opened again.
    """

    def __init__(
        self,
        kube: ObjectStore,
        selection: Selection,
        *,
        on_change: Callable[[ObjectChange], None],
        on_trouble: Callable[[str], None] | None = None,
        newest: bool = False,
        silence: float = SILENCE,
    ) -> None:
        self._kube = kube
        self._selection = selection
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._silence = silence
        self._objects: dict[str, dict[str, Any]] = {}
        self._from = "" if newest else "0"  # of the first list
        self._version = ""  # of what was reported last; empty: list first
        self._trouble = ""
        self._last_contact: float | None = None
        self._failures = 0
        self.synced = asyncio.Event()
        """Set after the first list was reported, or once it is known that there is no such kind; stays set."""
        self.absent = False
        """Whether the server does not have an optional kind now. The objects of before stay in the copy."""
        self.objects: Mapping[str, dict[str, Any]] = MappingProxyType(self._objects)
        """Objects by uid, as they were at one moment: if a list brings several changes, all of them are here when the
        first is reported. Read only."""

    @property
    def fresh_seconds(self) -> float:
        """Seconds since data last came from the server; infinite before the first."""
        if self._last_contact is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self._last_contact

    @property
    def trouble(self) -> str:
        """Reason why the server cannot be reached now; empty while it can."""
        return self._trouble

    async def run(self) -> None:
        """Keep the copy until cancelled; errors of the API are retried and never raised."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._follow()
                continue
            except Gone:
                self._version, self._from = "", ""  # the cache may be what is too old
            except NotFound as error:
                self._version, self._from = "", ""
                self._report_trouble(error.message)
                if self._selection.optional:
                    self.absent = True
                    self.synced.set()
            except KubeError as error:
                self._report_trouble(error.message)
                if error.status == 400:  # a version that this server does not understand: another cluster's
                    self._version, self._from = "", ""
            pause = min(FIRST_PAUSE * 2 ** min(self._failures, 16), LAST_PAUSE)
            self._failures += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret

    async def _list(self) -> None:
        wanted = self._selection
        found = await self._kube.list(
            wanted.path,
            labels=wanted.labels,
            fields=wanted.fields,
            resource_version=self._from,
            trim=wanted.trim,
            size=wanted.page,
        )
        self._note_contact()
        self.absent = False
        known = dict(self._objects)
        self._objects.clear()
        self._objects.update(
            (objects.uid(item), item) for item in found.items
        )  # all of it before any of it is reported
        for uid in known.keys() - self._objects.keys():
            self._on_change(ObjectChange("removed", known[uid]))
        for uid, item in self._objects.items():
            self._report(known.get(uid), item)
        self._version = found.resource_version
        self.synced.set()

    async def _follow(self) -> None:
        loop, wanted = asyncio.get_running_loop(), self._selection
        begun = loop.time()
        events = self._kube.watch(
            wanted.path,
            resource_version=self._version,
            labels=wanted.labels,
            fields=wanted.fields,
            silence=self._silence,
            opened=self._note_contact,
        )
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            async for event in events:
                self._note_contact()
                self._failures = 0
                self._take(event)
        if loop.time() - begun < SHORT:
            raise KubeError(0, "Short", "The API server ended a watch at once.")

    def _take(self, event: WatchEvent) -> None:
        kind = _KINDS.get(event.type)
        if kind == "removed":
            if self._objects.pop(objects.uid(event.object), None) is not None:
                self._on_change(ObjectChange(kind, self._trimmed(event.object)))
        elif kind is not None:
            self._keep(self._trimmed(event.object))
        self._version = objects.resource_version(event.object) or self._version

    def _keep(self, item: dict[str, Any]) -> None:
        uid = objects.uid(item)
        known = self._objects.get(uid)
        self._objects[uid] = item
        self._report(known, item)

    def _report(self, known: dict[str, Any] | None, item: dict[str, Any]) -> None:
        if known is None or objects.resource_version(known) != objects.resource_version(item):
            self._on_change(ObjectChange("added" if known is None else "changed", item))

    def _trimmed(self, item: dict[str, Any]) -> dict[str, Any]:
        trim = self._selection.trim
        return trim(item) if trim else item

    def _note_contact(self) -> None:
        self._last_contact = asyncio.get_running_loop().time()
        if self._trouble:
            self._trouble = ""
            if self._on_trouble:
                self._on_trouble("")

    def _report_trouble(self, message: str) -> None:
        if message != self._trouble:
            _log.warning("%s can't be followed: %s It is tried again.", self._selection.path, message)
            self._trouble = message
            if self._on_trouble:
                self._on_trouble(message)
