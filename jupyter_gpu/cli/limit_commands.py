"""``jupyter gpu limits``: for administrators, who may have how many GPUs in a cluster, or on this machine.

The modules that carry them out, `limit_access` and `limit_file_access`, are loaded with the first command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import codes, options
from .output import say

if TYPE_CHECKING:
    from .limit_way import LimitAccess

_EPILOG = (
    "With --machine it changes the limits of this machine's users, with --service it speaks to the hub's service "
    "(token of the hub in JUPYTERHUB_API_TOKEN), otherwise to the API server of KUBECONFIG. Subjects are user:ann, "
    "group:ml, namespace:jobs and default, on one machine also cap; fields are those of a GpuLimit, such as max=2 "
    "guaranteed=0.5 weight=3 'hours=Mon-Fri 08:00-18:00=1', and 'inherit' takes one back."
)


def add(commands: options.Commands) -> None:
    """Add the commands of this module."""
    limits = options.command(
        commands, "limits", "see and change who may have how many GPUs, in a cluster or on this machine", epilog=_EPILOG
    )
    parts = limits.add_subparsers(dest="part", required=True, metavar="COMMAND", title="commands")
    common = [_where(), options.output()]
    listed = options.command(parts, "list", "show all limits", parents=common)
    listed.set_defaults(run=_list)
    changed = options.command(parts, "set", "set fields of a limit, which is created if need be", parents=common)
    changed.add_argument("subject", help="such as user:ann")
    changed.add_argument("fields", nargs="+", metavar="FIELD=VALUE")
    changed.set_defaults(run=_set)
    removed = options.command(parts, "remove", "remove a limit", parents=common)
    removed.add_argument("subject", help="such as user:ann")
    removed.set_defaults(run=_remove)
    explained = options.command(parts, "explain", "say how many GPUs a user may have, and why", parents=common)
    explained.add_argument("user")
    explained.set_defaults(run=_explain)
    exported = options.command(parts, "export", "print all limits as a file", parents=[_where()])
    exported.add_argument("--format", choices=("csv", "json"), default="json")
    exported.set_defaults(run=_export)
    used = options.command(parts, "usage", "show the GPU-hours of a month by user and group", parents=common)
    used.add_argument("--month", metavar="YYYY-MM", help="such as 2026-10; without it, this month")
    used.add_argument("--csv", action="store_true", help="as a table for a spreadsheet")
    used.set_defaults(run=_usage)
    applied = options.command(parts, "apply", "read limits from a file, and write what differs", parents=common)
    applied.add_argument("file", type=Path, help="a table (.csv) or a document (JSON); - is standard input")
    applied.add_argument("--format", choices=("csv", "json"), help="of standard input, or of a file with another name")
    applied.add_argument("--replace", action="store_true", help="remove limits that are not in it")
    applied.add_argument("--dry-run", action="store_true", help="only say what would be written")
    applied.set_defaults(run=_apply)


def _where() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument(
        "--service", metavar="URL", help="of the hub's service, such as https://hub.example/services/gpu"
    )
    parent.add_argument("--machine", action="store_true", help="the limits of this machine's users")
    parent.add_argument(
        "--limits-file", type=Path, metavar="FILE", help="the file with them, where it is not the usual one in /etc"
    )
    parent.add_argument("--hub", default="", metavar="NAME", help="the hub of users and groups; without it, every hub")
    return parent


def _access(given: argparse.Namespace) -> LimitAccess:
    if given.machine or given.limits_file:
        from jupyter_gpu.common.limits_file import MACHINE

        from .limit_file_access import OverFile

        return OverFile(given.limits_file or MACHINE)
    try:
        from .limit_access import access
    except ImportError as error:
        from jupyter_gpu.model.errors import GpuError

        raise GpuError(
            f"This needs a package that is not installed ({error.name}): the wheel's extra 'kubernetes' has it."
        ) from None
    return access(given.service, given.hub)


def _list(given: argparse.Namespace) -> int:
    from .rules.limit_words import table

    rows = _access(given).rows()
    say({"limits": rows} if given.json else table(rows))
    return codes.DONE


def _set(given: argparse.Namespace) -> int:
    result = _access(given).set(given.subject, given.fields)
    say(result if given.json else f"{given.subject}: {result['result']}.")
    return codes.DONE


def _remove(given: argparse.Namespace) -> int:
    result = _access(given).set(given.subject, None)
    say(result if given.json else f"{given.subject}: {result['result']}.")
    return codes.DONE


def _explain(given: argparse.Namespace) -> int:
    found = _access(given).explain(given.user)
    say(found if given.json else "\n".join([found["sentence"], *map(_step, found["limits"])]))
    return codes.DONE


def _step(step: Mapping[str, Any]) -> str:
    value = "-" if step["value"] is None else step["value"]
    return f"  {step['object']}: {value}. {step['reason']}"


def _export(given: argparse.Namespace) -> int:
    print(_access(given).export(given.format), end="", flush=True)
    return codes.DONE


def _usage(given: argparse.Namespace) -> int:
    from jupyter_gpu.model import strict
    from jupyter_gpu.model.errors import InvalidRequest
    from jupyter_gpu.model.limits.transfer.usage import Month, write_usage

    from .rules.limit_words import usage_table

    try:
        month = Month.parse(given.month or f"{datetime.now(UTC):%Y-%m}")
    except strict.FieldError as error:
        raise InvalidRequest(str(error), error.field) from None
    rows = _access(given).usage(month)
    if given.csv:
        print(write_usage(rows, month), end="", flush=True)
    else:
        say({"usage": [row.to_json(month) for row in rows]} if given.json else usage_table(rows, month))
    return codes.DONE


def _apply(given: argparse.Namespace) -> int:
    text = sys.stdin.read() if str(given.file) == "-" else _read(given.file)
    kind = given.format or ("csv" if given.file.suffix.lower() == ".csv" else "json")
    found = _access(given).apply(text, kind, replace=given.replace, dry_run=given.dry_run)
    wrong = found["refused"] or any(item["result"] == "refused" for item in found["results"] or ())
    if given.json:
        say(found)
    else:
        for line in found["lines"]:
            for error in line.get("errors", ()):
                print(f"Line {line.get('line', '?')}: {error}", file=sys.stderr)
        say(found["sentence"])
        if preview := found.get("preview"):
            say(preview["sentence"])
    return codes.ERROR if wrong else codes.DONE


def _read(path: Path) -> str:
    from jupyter_gpu.model.errors import GpuError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise GpuError(f"{path} can't be read: {error}") from None
