"""Writes of limits: each with the version that it is for, recorded with the object and on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, KubeError, NotFound, ObjectStore
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.limits.changes import LimitChange
from jupyter_gpu.model.limits.limit import Subject
from jupyter_gpu_hub.rules import edits
from jupyter_gpu_hub.rules.edits import Create, Delete, Edit, Patch, Prepared
from jupyter_gpu_hub.rules.known import KnownLimit, find
from jupyter_gpu_hub.rules.place import CLUSTER
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.removed import RemovedLimit

from .removals import Removals

Print = Callable[[str], None]

TRIES = 4
"""Attempts to write an edit while only the status of its limit changes in between."""


def print_line(line: str) -> None:
    """Print one line of the audit log at once: a process that is killed has said what it did."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class LimitWriter:
    """The writer of limits for people. Raises `Refusal`, `FieldError` and `KubeError`.

    ``home`` returns a subject as limits here have it; ``cap``: the reason why the cap is not changed here.
    """

    def __init__(
        self,
        store: ObjectStore,
        known: Callable[[], Mapping[str, KnownLimit]],
        *,
        output: Print = print_line,
        now: Callable[[], float] = time.time,
        home: Callable[[Subject], Subject] = lambda subject: subject,
        cap: str = CLUSTER.cap,
    ) -> None:
        self._store = store
        self._removals = Removals(store)
        self._known = known
        self._output = output
        self._now = now
        self._home = home
        self._cap = cap

    def prepare(self, edit: Edit, by: str) -> Prepared:
        """Return the write for an edit of the limits as they are known, and write nothing."""
        edit = self._at_home(edit)
        return self._prepare(edit, self._current(edit.subject), by)

    async def write(self, edit: Edit, by: str) -> tuple[Prepared, KnownLimit | None]:
        """Write an edit; return what was written, and the limit as it is now (``None``: there is none).

        The copy may lag behind a write of a moment ago, and the scheduler writes the status of limits: so a conflict is
        looked at again, in the API server, and only a change of what the limit says ends the edit.
        """
        edit = self._at_home(edit)
        current = self._current(edit.subject)
        prepared = self._prepare(edit, current, by)
        if isinstance(prepared.write, Delete) and current:
            await self._removals.add(RemovedLimit.of(current, edit.subject, prepared.change))
            faults.point("hub:recorded")
        try:
            prepared, now = await self._write(prepared, edit, by)
        except Refusal:
            if isinstance(prepared.write, Delete):
                with suppress(KubeError):
                    await self._removals.forget(prepared.write.uid)
            raise
        if prepared.write is not None:
            faults.point("hub:written")
            self._output(audit_line(prepared.subject, prepared.object_name, prepared.change))
        return prepared, now

    async def _write(self, prepared: Prepared, edit: Edit, by: str) -> tuple[Prepared, KnownLimit | None]:
        for _ in range(TRIES - 1):
            try:
                return prepared, await self._send(prepared)
            except (Conflict, NotFound):
                found = await self._read(prepared.object_name)
                if found and found.limit.subject != edit.subject:
                    raise edits.conflict(edit, found) from None
                prepared = self._prepare(edit, found, by)
        try:
            return prepared, await self._send(prepared)
        except (Conflict, NotFound):
            raise edits.conflict(edit, await self._read(prepared.object_name)) from None

    def _at_home(self, edit: Edit) -> Edit:
        return replace(edit, subject=self._home(edit.subject))

    def _prepare(self, edit: Edit, current: KnownLimit | None, by: str) -> Prepared:
        return edits.prepare(edit, current, by, int(self._now()), cap=self._cap)

    def _current(self, subject: Subject) -> KnownLimit | None:
        return find(subject, self._known().values())

    async def _read(self, name: str) -> KnownLimit | None:
        try:
            return KnownLimit.of(await self._store.get(paths.limit(name)))
        except NotFound:
            return None

    async def _send(self, prepared: Prepared) -> KnownLimit | None:
        match prepared.write:
            case Create(made):
                return KnownLimit.of(await self._store.create(paths.limits(), made))
            case Patch(name, patch):
                return KnownLimit.of(await self._store.patch(paths.limit(name), patch))
            case Delete(name, uid, version):
                await self._store.delete(paths.limit(name), uid=uid, resource_version=version)
                return None
            case None:
                return self._current(prepared.subject)


def audit_line(subject: Subject, name: str, change: LimitChange) -> str:
    """Return one line of the audit log: a JSON object on one line, whatever the names are."""
    body: dict[str, Any] = {
        "event": "limit",
        **change.to_json(),
        "from": change.before,
        "to": change.after,
        "subject": subject.to_json(),
        "object": name,
    }
    return json.dumps(body)  # ASCII, so that no name can forge a line
