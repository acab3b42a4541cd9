"""REST of limits: the table, one limit, many at once, import and export."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpu.kube import KubeError
from jupyter_gpu.model import strict
from jupyter_gpu_hub.rules import documents, limit_rows
from jupyter_gpu_hub.rules.edits import Edit, Prepared
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.limit_rows import LimitRow
from jupyter_gpu_hub.rules.paging import page, read_query
from jupyter_gpu_hub.rules.refusals import Refusal, of_status

from .api import ApiHandler
from .base import refusal_of

MAX_DOCUMENT = 8 * 2**20
"""Bytes of an import: 10,000 limits with all fields."""
AT_ONCE = 8
"""Writes of one request that are under way together."""


class OneLimit(ApiHandler):
    """Base of handlers that answer with one limit, whose version is the ETag."""

    def send_limit(self, known: KnownLimit, status: int = 200) -> None:
        """Answer with one limit and its version."""
        self.set_header("ETag", f'"{known.version}"')
        self.answer(LimitRow(known.limit.subject, known, known.limit.problem).to_json(), status)

    def compute_etag(self) -> str | None:
        """Return the ETag of a table; that of one limit is its version."""
        return self._headers.get("ETag") or super().compute_etag()


class LimitsHandler(OneLimit):
    """The table of limits, and new limits."""

    async def get(self) -> None:
        """Answer with one page of the table."""
        self.need_reader()
        query = read_query(self.query(), limit_rows.SORTS)
        found = page(self.limit_rows(), query, limit_rows.SORTS[query.sort], lambda row: row.name)
        problem = self.site.problem()
        self.answer({**found.to_json([row.to_json() for row in found.rows]), "problem": problem or None})

    async def post(self) -> None:
        """Create the limit of a subject that has none."""
        self.need_editor()
        body = self.body()
        strict.no_unknown(body, ("subject", "set"))
        edit = Edit.from_json({**body, "version": ""})
        if edit.fields is None:
            raise strict.FieldError("The field 'set' must be a JSON object.", "set")
        _, now = await self.site.writer.write(edit, self.visitor.label)
        assert now is not None
        self.set_header("Location", f"{self.settings['base_url']}api/v1/limits/{now.name}")
        self.send_limit(now, 201)

    def limit_rows(self) -> list[LimitRow]:
        """Return all rows."""
        return limit_rows.rows(self.site.known.values(), self.site.mirror.groups.values(), self.site.hub)


class LimitHandler(OneLimit):
    """One limit, by the name of its object."""

    async def get(self, name: str) -> None:
        """Answer with the limit."""
        self.need_reader()
        self.send_limit(self._known(name))

    async def patch(self, name: str) -> None:
        """Set some of its fields; one that is null is inherited from then on."""
        self.need_editor()
        known, body = self._known(name), self.body()
        strict.no_unknown(body, ("set",))
        edit = Edit.from_json({"subject": _subject(known), "set": body.get("set", {}), "version": self._version()})
        if edit.fields is None:
            raise strict.FieldError("The field 'set' must be a JSON object; DELETE removes the limit.", "set")
        _, now = await self.site.writer.write(edit, self.visitor.label)
        assert now is not None
        self.send_limit(now)

    async def delete(self, name: str) -> None:
        """Remove it."""
        self.need_editor()
        edit = Edit.from_json({"subject": _subject(self._known(name)), "set": None, "version": self._version()})
        await self.site.writer.write(edit, self.visitor.label)
        self.set_status(204)
        self.finish()

    def _known(self, name: str) -> KnownLimit:
        known = self.site.known.get(name)
        if known is None:
            raise Refusal(404, f"There is no limit {strict.printable(name, 100)!r}.")
        return known

    def _version(self) -> str:
        """Return the version that the change is for, which must be said."""
        text = self.request.headers.get("If-Match", "").strip()
        if not text:
            raise of_status(428)
        return text.removeprefix("W/").strip('"')[:64] or "?"


class BulkHandler(ApiHandler):
    """Many edits at once; with ``dryRun`` only what they would do."""

    most = MAX_DOCUMENT

    async def post(self) -> None:
        """Answer with the result of each edit; one that is refused does not stop the others."""
        self.need_editor()
        body = self.body()
        strict.no_unknown(body, ("edits", "dryRun"))
        edits = strict.required(body, "edits", documents.read_edits)
        await self.carry_out(edits, dry_run=_dry_run(body))

    async def carry_out(self, edits: Sequence[Edit], *, dry_run: bool) -> None:
        """Do all edits, and answer."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(edit: Edit) -> dict[str, Any]:
            async with gate:
                return await self._result(edit, dry_run)

        results = await asyncio.gather(*(one(edit) for edit in edits))
        counts = {word: sum(item["result"] == word for item in results) for word in _WORDS}
        self.answer({"dryRun": dry_run, "counts": counts, "results": results})

    async def _result(self, edit: Edit, dry_run: bool) -> dict[str, Any]:
        """Return the result of one edit."""
        try:
            if dry_run:
                prepared = self.site.writer.prepare(edit, self.visitor.label)
            else:
                prepared, _ = await self.site.writer.write(edit, self.visitor.label)
        except (Refusal, KubeError, strict.FieldError) as error:
            refused = refusal_of(500, error).to_json()
            return {"subject": edit.subject.to_json(), "result": "refused", "error": refused}
        return _done(prepared)


class ImportHandler(BulkHandler):
    """Limits from a document: JSON."""

    async def post(self) -> None:
        """Answer with the result for each limit of the document."""
        self.need_editor()
        body = self.body()
        strict.no_unknown(body, ("limits", "dryRun"))
        edits = strict.required(body, "limits", documents.read_limits)
        await self.carry_out(edits, dry_run=_dry_run(body))


class ExportHandler(ApiHandler):
    """All limits that people write, as a document."""

    async def get(self) -> None:
        """Answer with the document, which an import accepts."""
        self.need_reader()
        strict.no_unknown(self.query(), ())
        self.set_header("Content-Disposition", 'attachment; filename="gpu-limits.json"')
        self.answer(documents.export(self.site.known.values()))


_WORDS = ("created", "changed", "removed", "unchanged", "refused")


def _done(prepared: Prepared) -> dict[str, Any]:
    change = prepared.change
    word = "changed"
    if prepared.write is None:
        word = "unchanged"
    elif change.before is None:
        word = "created"
    elif change.after is None:
        word = "removed"
    return {
        "subject": prepared.subject.to_json(),
        "object": prepared.object_name,
        "result": word,
        "from": change.before,
        "to": change.after,
    }


def _dry_run(body: Mapping[str, Any]) -> bool:
    return bool(strict.optional(body, "dryRun", strict.boolean))


def _subject(known: KnownLimit) -> dict[str, str]:
    if known.limit.subject is None:
        raise Refusal(422, f"This limit is about no one, as its subject can't be read: {known.limit.problem}")
    return known.limit.subject.to_json()
