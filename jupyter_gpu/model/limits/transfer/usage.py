"""GPU-hours of a month, by user, namespace and group, as a table for showback."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from ... import strict
from ..account import ALL, KEPT_DAYS, Account
from ..amount import reader
from ..limit import MAX_SUBJECT, Limit, SubjectKind, read_name
from ..times import format_gpu_hours, parse_gpu_hours
from . import cells
from .table import BOM

COLUMNS = ("month", "kind", "name", "hub", "gpu_hours", "days", "complete")
_MONTH = re.compile(r"(\d{4})-(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A month of the calendar, in the installation's time zone as the accounts count days."""

    year: int
    number: int
    """1 to 12."""

    @classmethod
    def parse(cls, text: str, key: str = "month") -> Month:
        """Read ``2026-10``; raises `FieldError`."""
        match = _MONTH.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= 12 or not int(match[1]):
            raise strict.FieldError(f"{strict.printable(text, 40)!r} is no month; write it as 2026-10.", key)
        return cls(int(match[1]), int(match[2]))

    def __contains__(self, day: date) -> bool:
        """Tell whether a day is in the month."""
        return (day.year, day.month) == (self.year, self.number)

    def __str__(self) -> str:
        """Write it as ``2026-10``."""
        return f"{self.year:04}-{self.number:02}"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The use of one user, namespace or group in a month."""

    kind: SubjectKind
    name: str
    hub: str
    amount: int
    """Milli-GPU-seconds."""
    days: int
    """Days with use; of a group those of the member with the most."""
    complete: bool
    """Whether all days with use are known: an account keeps the newest, and a day that can't be read counts nothing
    here."""

    def to_json(self, month: Month) -> dict[str, Any]:
        """Return the JSON object; hours are text, exact."""
        return {
            "month": str(month),
            "kind": self.kind.value,
            "name": self.name,
            "hub": self.hub,
            "gpuHours": str(format_gpu_hours(self.amount)),
            "days": self.days,
            "complete": self.complete,
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "usage") -> UsageRow:
        """Checked; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            kind=SubjectKind(strict.required(body, "kind", strict.one_of(*SubjectKind))),
            name=strict.required(body, "name", read_name),
            hub=strict.optional(body, "hub", strict.text(MAX_SUBJECT)) or "",
            amount=strict.required(body, "gpuHours", reader(_hours)),
            days=strict.required(body, "days", strict.integer(0, 31)),
            complete=strict.required(body, "complete", strict.boolean),
        )


def usage(accounts: Iterable[Account], limits: Iterable[Limit], month: Month) -> tuple[UsageRow, ...]:
    """Return the use in a month: users and namespaces, then groups.

    A group's members are those that its limits name now, so a group without a limit is not among them; a user in
    several groups counts for each.
    """
    groups = _groups_of_users(limits)
    found: list[UsageRow] = []
    shared: dict[tuple[str, str], list[UsageRow]] = {}
    for account in accounts:
        row = _row(account, month)
        if row.days or not row.complete:
            found.append(row)
            for name, hub, of in groups.get(row.name, ()) if row.kind is SubjectKind.USER else ():
                if of in ("", row.hub):
                    shared.setdefault((name, hub), []).append(row)
    found += [
        UsageRow(
            SubjectKind.GROUP,
            name,
            hub,
            amount=sum(row.amount for row in rows),
            days=max(row.days for row in rows),
            complete=all(row.complete for row in rows),
        )
        for (name, hub), rows in shared.items()
    ]
    return tuple(sorted(found, key=lambda row: (row.kind is SubjectKind.GROUP, row.kind.value, row.hub, row.name)))


def write_usage(rows: Sequence[UsageRow], month: Month, *, bom: bool = False) -> str:
    """Return rows as CSV that no spreadsheet takes for formulas; ``bom`` as in `write_table`."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        body = row.to_json(month)
        values = [*list(body.values())[:-1], cells.yes_cell(row.complete)]
        writer.writerow([cells.protect(str(value)) for value in values])
    return (BOM if bom else "") + text.getvalue()


def _hours(value: object) -> int:
    amount = parse_gpu_hours(value)
    if not isinstance(amount, int):
        raise ValueError("GPU-hours that were used cannot be unlimited.")
    return amount


def _row(account: Account, month: Month) -> UsageRow:
    known = {day: amount for day, amount in account.hours.items() if amount < ALL}
    mine = {day: amount for day, amount in known.items() if day in month and amount}
    first = date(month.year, month.number, 1)
    dropped = len(account.hours) >= KEPT_DAYS and min(account.hours) > first
    unread = any(day in month for day in account.hours.keys() - known.keys())
    owner = account.owner
    return UsageRow(
        SubjectKind(owner.kind),
        owner.name,
        owner.hub,
        amount=sum(mine.values()),
        days=len(mine),
        complete=not (dropped or unread),
    )


def _groups_of_users(limits: Iterable[Limit]) -> dict[str, set[tuple[str, str, str]]]:
    """Return the groups of each user, by the user's name: name and hub, and the hub of the user, empty for any."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for limit in limits:
        if limit.subject and limit.subject.kind is SubjectKind.GROUP:
            hub = limit.subject.hub
            for of, members in (limit.hub_members or {hub: limit.members}).items():
                for member in members:
                    found.setdefault(member, set()).add((limit.subject.name, hub, of))
    return found
