"""REST of the GPU-hours of a month, for showback."""

from __future__ import annotations

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.transfer.usage import Month, usage, write_usage

from .api import ApiHandler


class MonthHandler(ApiHandler):
    """GPU-hours of a month by user, namespace and group."""

    async def get(self) -> None:
        """Answer with the rows of ``month``, such as 2026-10; ``format``: json or csv."""
        self.need_reader()
        query = self.query()
        strict.no_unknown(query, ("month", "format"))
        month = Month.parse(strict.required(query, "month", strict.text(40)))
        kind = strict.one_of("csv", "json")(query.get("format", "json"), "format")
        rows = usage(self.site.accounts_by_owner.values(), self.site.plain_limits(), month)
        if kind == "json":
            self.answer({"items": [row.to_json(month) for row in rows], "problem": self.site.problem() or None})
            return
        self.set_header("Content-Disposition", f'attachment; filename="gpu-hours-{month}.csv"')
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.finish(write_usage(rows, month, bom=True))
