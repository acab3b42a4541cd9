"""Writes Kubernetes Events in the background, for people.

A repeated event about one object becomes a count, written at most every few seconds. A write that fails is logged and
not tried again, as nothing depends on Events.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jupyter_gpu.kube.rules import objects, paths

from .client import Kube
from .errors import Conflict, KubeError, NotFound

MAX_KINDS = 4096
"""Different events that are remembered."""
REMEMBERED_SECONDS = 3000.0
"""Seconds without an event after which its count begins anew; the cluster deletes Events after an hour."""
AGAIN = 5.0
"""Seconds between two writes about the same event."""
PER_SECOND, BURST = 10.0, 50.0
"""Writes of all events together."""
MAX_MESSAGE = 1024
CLOSE_SECONDS = 2.0
"""Seconds that `Recorder.close` waits."""

_log = logging.getLogger(__name__)

EventKey = tuple[str, str, str]


@dataclass(slots=True)
class _RecordedEvent:
    about: dict[str, str]
    kind: str
    reason: str
    message: str
    first: str
    used: float
    count: int = 0
    last: str = ""
    fixed_name: str = ""
    """Name that the Event object is to have; empty: any."""
    name: str = ""
    """Name of the Event object; empty before it was written."""
    written: float = float("-inf")


class Recorder:
    """A writer of Events in the background: repeated ones are counted, too many are dropped, failures are logged."""

    def __init__(self, kube: Kube, component: str, *, host: str = "") -> None:
        self._kube = kube
        self._component = component
        self._host = host
        self._entries: dict[EventKey, _RecordedEvent] = {}
        self._waiting: dict[EventKey, None] = {}
        self._writer: asyncio.Task[None] | None = None
        self._tokens = BURST
        self._filled = 0.0

    def event(
        self,
        about: Mapping[str, Any],
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        name: str = "",
    ) -> None:
        """Note that something happened to ``about`` (a Pod's or Node's JSON); returns at once.

        ``name`` names the Event object: where there is one of that name, it is this event, and nothing is written.
        """
        loop = asyncio.get_running_loop()
        key = (objects.uid(about) or objects.name(about), reason, message)
        entry = self._entries.get(key)
        if entry is None or loop.time() - entry.used > REMEMBERED_SECONDS:
            if len(self._entries) >= MAX_KINDS and not self._forget(loop.time()):
                _log.warning("Too many events at once; dropped: %s: %s", reason, message)
                return
            entry = _RecordedEvent(_reference(about), kind, reason, message, _now(), loop.time(), fixed_name=name)
            self._entries[key] = entry
        entry.count += 1
        entry.last = _now()
        entry.used = loop.time()
        self._waiting[key] = None
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write_all())

    async def close(self) -> None:
        """Write what is left, for at most some seconds."""
        if self._writer is None:
            return
        if self._writer.done() and self._waiting:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())
        for key in self._waiting:
            self._entries[key].written = float("-inf")  # now or never
        await asyncio.wait((self._writer,), timeout=CLOSE_SECONDS)
        self._writer.cancel()
        await asyncio.wait((self._writer,))

    def _forget(self, now: float) -> bool:
        """Make room by forgetting events that did not occur for a while; return whether there were any."""
        idle = [key for key, entry in self._entries.items() if now - entry.used > AGAIN and key not in self._waiting]
        for key in idle:
            del self._entries[key]
        return bool(idle)

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            due = min(self._waiting, key=lambda key: self._entries[key].written)
            entry = self._entries[due]
            pause = max(entry.written + AGAIN - loop.time(), self._until_token(loop.time()))
            if pause > 0:
                await asyncio.sleep(min(pause, 0.2))  # in short pauses: a new event must not wait for this one
                continue
            self._tokens -= 1
            del self._waiting[due]
            entry.written = loop.time()
            try:
                await self._write(entry)
            except KubeError as error:
                _log.warning("An event could not be written (%s: %s): %s", entry.reason, entry.message, error.message)
            except Exception:
                _log.exception("An event could not be written (%s: %s).", entry.reason, entry.message)

    def _until_token(self, now: float) -> float:
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / PER_SECOND

    async def _write(self, entry: _RecordedEvent) -> None:
        namespace = entry.about.get("namespace") or "default"
        if entry.name:
            change = {"count": entry.count, "lastTimestamp": entry.last}
            try:
                await self._kube.patch(paths.event(namespace, entry.name), change)
                return
            except NotFound:  # the cluster has deleted it
                entry.first = entry.last
        name = entry.fixed_name or f"{entry.about['name'][:200]}.{uuid.uuid4().hex[:16]}"
        try:
            await self._kube.create(paths.events(namespace), self._body(entry, name, namespace))
        except Conflict as error:
            if not (entry.fixed_name and error.exists):
                raise
        entry.name = name

    def _body(self, entry: _RecordedEvent, name: str, namespace: str) -> dict[str, Any]:
        text = entry.message
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": entry.about,
            "type": entry.kind,
            "reason": entry.reason,
            "message": text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…",
            "source": {"component": self._component, **({"host": self._host} if self._host else {})},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": entry.first,
            "lastTimestamp": entry.last,
            "count": entry.count,
        }


def _reference(about: Mapping[str, Any]) -> dict[str, str]:
    """Return a reference to an object. One without a kind is a Pod if it is in a namespace, else a Node."""
    namespace = objects.namespace(about)
    found = {
        "apiVersion": str(about.get("apiVersion") or "v1"),
        "kind": str(about.get("kind") or ("Pod" if namespace else "Node")),
        "name": objects.name(about),
        "namespace": namespace,
        "uid": objects.uid(about),
        "resourceVersion": objects.resource_version(about),
    }
    return {key: value for key, value in found.items() if value}


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
