"""The way to the limits of this machine's users, for ``jupyter gpu limits --machine``: the administrator's file."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_gpu.cli.rules import limit_file, limit_words
from jupyter_gpu.cli.rules.limit_file import FileLimit, Outcomes, Wanted
from jupyter_gpu.common import admin_file, limits_file
from jupyter_gpu.common.machine_users import groups_of
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError, InvalidRequest, NotPermitted
from jupyter_gpu.model.limits.machine_file import with_members
from jupyter_gpu.model.limits.transfer.difference import difference
from jupyter_gpu.model.limits.transfer.document import read_document, write_document
from jupyter_gpu.model.limits.transfer.table import read_table, write_table

if TYPE_CHECKING:
    from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
    from jupyter_gpu.model.limits.transfer.usage import Month, UsageRow


class OverFile:
    """The file itself: its owner writes it, and everybody may read it. Every method raises `GpuError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of limits."""
        return limit_file.rows(self._read())

    def set(self, subject: str, fields: Sequence[str] | None) -> Mapping[str, Any]:
        """Set the fields of a limit; ``None`` removes it."""
        wanted = Wanted(*limit_words.wanted(subject, "", fields))
        with self._locked():
            found = _changed(self._read(), [wanted])
            self._write(found.limits)
        (result,) = found.results
        return result

    def explain(self, user: str) -> Mapping[str, Any]:
        """Return a user's limit, with a sentence."""
        return limit_file.explained(self._read(), user, groups_of(user) | self._groups_in_hub().get(user, frozenset()))

    def _groups_in_hub(self) -> Mapping[str, frozenset[str]]:
        """Return the groups of the users of a hub whose servers run now; none where nothing knows them."""
        with suppress(InvalidRequest):
            return self._accounts().groups
        return {}

    def export(self, kind: str) -> str:
        """Return all limits as ``csv`` or ``json``."""
        limits = [item.limit for item in self._read()]
        return write_table(limits) if kind == "csv" else write_document(limits)

    def apply(self, text: str, kind: str, *, replace: bool, dry_run: bool) -> Mapping[str, Any]:
        """Write what differs, all of it or nothing; return the difference."""
        rows = read_table(text) if kind == "csv" else read_document(text)
        if dry_run:
            return self._difference(rows, replace)[0]
        with self._locked():
            answer, after = self._difference(rows, replace)
            if after is None:
                return answer
            self._write(after.limits)
        return {**answer, "results": list(after.results)}

    def usage(self, month: Month) -> Sequence[UsageRow]:
        """Return the GPU-hours of a month by user and group, as the process that counts them wrote them last."""
        from jupyter_gpu.model.limits.transfer.usage import usage

        found = self._accounts()
        names = {owner.name for owner in found.accounts}
        groups = {name: groups_of(name) | found.groups.get(name, frozenset()) for name in names}
        limits = with_members((item.limit for item in self._read()), groups)
        return usage(found.accounts.values(), limits, month)

    def _accounts(self) -> MachineAccounts:
        from jupyter_gpu.model.limits.machine_accounts import MAX_BYTES, read_accounts

        path = limits_file.accounts_of(self._path)
        try:
            return read_accounts(admin_file.read(path, {0, os.geteuid()}, MAX_BYTES).text)
        except (FileNotFoundError, NotADirectoryError):
            raise InvalidRequest(
                f"GPU-hours are not known: there is no {path}. Root must keep python -m "
                "jupyter_gpu.backends.local.accounting running."
            ) from None
        except strict.FieldError as error:
            raise GpuError(f"The GPU-hours of this machine can't be used. {path}: {error}") from None

    def _difference(self, rows: Any, replace: bool) -> tuple[dict[str, Any], Outcomes | None]:
        """Return the answer of a dry run, and the file afterwards: ``None`` where something of it is refused."""
        known = self._read()
        found = difference([item.limit for item in known], rows, replace=replace)
        answer = {**found.to_json(), "results": None}
        return answer, None if found.refused else _changed(known, limit_file.wanted_of(found))

    def _read(self) -> tuple[FileLimit, ...]:
        return self._file().limits

    def _file(self) -> limit_file.LimitFile:
        try:
            return limit_file.read(admin_file.read(self._path, {0, os.geteuid()}, limits_file.MAX_BYTES).text)
        except (FileNotFoundError, NotADirectoryError):
            return limit_file.LimitFile()
        except strict.FieldError as error:
            raise GpuError(f"The limits of this machine can't be used. {self._path}: {error}") from None

    def _write(self, limits: tuple[FileLimit, ...]) -> None:
        limits_file.replace(self._path, limit_file.write(self._file()._replace(limits=limits)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with limits_file.locked(self._path):
                yield
        except PermissionError:
            raise NotPermitted(f"Only root may write {self._path}: use sudo.") from None
        except OSError as error:
            raise GpuError(f"{self._path} can't be written: {error.strerror}. The limits are as they were.") from None


def _changed(limits: Sequence[FileLimit], wanted: Sequence[Wanted]) -> Outcomes:
    try:
        return limit_file.changed(limits, wanted, _own_name(), int(time.time()))
    except strict.FieldError as error:
        raise InvalidRequest(str(error), error.field) from None


def _own_name() -> str:
    """Return the name of the person who changes limits; of a root who came by sudo, both."""
    number = os.geteuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = f"user {number}"
    return os.environ.get("SUDO_USER") or name if number == 0 else name
