"""REST of limits: the table, one limit, many at once, import and export."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.transfer.document import write_document
from jupyter_gpu.model.limits.transfer.table import write_table
from jupyter_gpu.model.message import gettext
from jupyter_gpu_hub.rules import documents, limit_rows
from jupyter_gpu_hub.rules.edits import Edit
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.limit_rows import LimitRow
from jupyter_gpu_hub.rules.paging import page, read_query
from jupyter_gpu_hub.rules.refusals import Refusal, of_status
from jupyter_gpu_hub.state.results import REFUSED, WORDS, done, refused

from .api import ApiHandler

MAX_DOCUMENT = 8 * 2**20
"""Bytes of an import: 10,000 limits with all fields."""
AT_ONCE = 8
"""Writes of one request that are under way together."""


class OneLimit(ApiHandler):
    """Base of handlers that answer with one limit, whose version is the ETag."""

    _etag = ""

    def send_limit(self, known: KnownLimit, status: int = 200) -> None:
        """Answer with one limit and its version."""
        self._etag = f'"{known.version}"'
        if self.request.method != "GET":  # to that tornado adds it, and compares it with what the client has
            self.set_header("ETag", self._etag)
        self.answer(LimitRow(known.limit.subject, known, known.limit.problem).to_json(), status)

    def compute_etag(self) -> str | None:
        """Return the ETag of a table; that of one limit is its version."""
        return self._etag or super().compute_etag()


class LimitsHandler(OneLimit):
    """The table of limits, and new limits."""

    async def get(self) -> None:
        """Answer with one page of the table."""
        self.need_reader()
        query = read_query(self.query(), limit_rows.SORTS)
        found = page(self.site.limit_rows(), query, limit_rows.SORTS[query.sort], lambda row: row.name)
        problem = self.site.problem()
        self.answer({**found.to_json([row.to_json() for row in found.rows]), "problem": problem or None})

    async def post(self) -> None:
        """Create the limit of a subject that has none."""
        self.need_editor()
        body = self.body()
        strict.no_unknown(body, ("subject", "set"))
        edit = Edit.from_json({**body, "version": ""})
        if edit.fields is None:
            raise strict.FieldError(gettext("The field 'set' must be a JSON object."), "set")
        _, now = await self.site.writer.write(edit, self.visitor.label)
        assert now is not None
        self.set_header("Location", f"{self.settings['base_url']}api/v1/limits/{now.name}")
        self.send_limit(now, 201)


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
            raise strict.FieldError(gettext("The field 'set' must be a JSON object; DELETE removes the limit."), "set")
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
            raise Refusal(404, gettext("There is no limit %1.", repr(strict.printable(name, 100))))
        return known

    def _version(self) -> str:
        """Return the version that the change is for, which must be said."""
        text = self.request.headers.get("If-Match", "").strip()
        if not text:
            raise of_status(428)
        return text.removeprefix("W/").strip('"')[:64] or "?"


class ManyHandler(ApiHandler):
    """Base of handlers that carry out many edits."""

    most = MAX_DOCUMENT

    async def write_all(self, edits: Sequence[Edit]) -> list[dict[str, Any]]:
        """Write all edits, some at a time; return the result of each. One that is refused does not stop the others."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(edit: Edit) -> dict[str, Any]:
            async with gate:
                try:
                    prepared, now = await self.site.writer.write(edit, self.visitor.label)
                except REFUSED as error:
                    return refused(edit, error)
                return done(prepared, now.version if now else "")

        return await asyncio.gather(*(one(edit) for edit in edits))

    async def try_all(self, edits: Sequence[Edit]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Write nothing; return what the result of each edit would be, and who would lose or get GPUs."""
        results, prepared = [], []
        for edit in edits:
            try:
                prepared.append(self.site.writer.prepare(edit, self.visitor.label))
                results.append(done(prepared[-1]))
            except REFUSED as error:
                results.append(refused(edit, error))
        after = documents.limits_after(self.site.plain_limits(), prepared)
        return results, await self.site.preview(after)


class BulkHandler(ManyHandler):
    """Many edits at once; with ``dryRun`` only what they would do."""

    async def post(self) -> None:
        """Answer with the result of each edit and, for a dry run, with a preview."""
        self.need_editor()
        body = self.body()
        strict.no_unknown(body, ("edits", "dryRun"))
        edits = strict.required(body, "edits", documents.read_edits)
        dry = strict.optional(body, "dryRun", strict.boolean) or False
        results, preview = await self.try_all(edits) if dry else (await self.write_all(edits), None)
        counts = {word: sum(item["result"] == word for item in results) for word in WORDS}
        self.answer({"dryRun": dry, "counts": counts, "results": results, "preview": preview})


class ImportHandler(ManyHandler):
    """Limits from a table (CSV) or a document (JSON). One limit that can't be written stops the import."""

    async def post(self) -> None:
        """Answer with the difference, line by line, and, for a dry run, with a preview."""
        self.need_editor()
        wanted = documents.Import.from_json(self.body())
        current = self.site.plain_limits()
        found = wanted.difference(current, self.site.place, self.site.hub)
        if found.refused and not wanted.dry_run:
            raise Refusal(
                422, gettext("Nothing was imported, as some limits can't be written."), difference=found.to_json()
            )
        if wanted.dry_run:
            preview = await self.site.preview(found.result(current))
            self.answer({**found.to_json(), "dryRun": True, "preview": preview, "results": None})
        else:
            results = await self.write_all(documents.edits_of(found))
            self.answer({**found.to_json(), "dryRun": False, "preview": None, "results": results})


class ExportHandler(ApiHandler):
    """All limits that people write, as a table (CSV) or a document (JSON)."""

    async def get(self) -> None:
        """Answer with a file that an import accepts; ``format``: csv or json."""
        self.need_reader()
        query = self.query()
        strict.no_unknown(query, ("format",))
        kind = strict.one_of("csv", "json")(query.get("format", "json"), "format")
        limits = self.site.exported()
        self.set_header("Content-Disposition", f'attachment; filename="gpu-limits.{kind}"')
        self.set_header("Content-Type", "text/csv; charset=utf-8" if kind == "csv" else "application/json")
        self.finish(write_table(limits, bom=True) if kind == "csv" else write_document(limits))


def _subject(known: KnownLimit) -> dict[str, str]:
    if known.limit.subject is None:
        raise Refusal(422, gettext("This limit is about no one, as its subject can't be read: %1", known.limit.problem))
    return known.limit.subject.to_json()
