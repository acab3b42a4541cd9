"""The accounts of one machine's users: the GPU-hours of each day, as the process that counts them writes them. Pure.

The file, of which each item is a ``GpuAccount`` without limits::

    {"format": 1, "boot": "…", "counted": 1234567, "items": [{"spec": {"owner": …}, "status": {"used", "hours"}}],
     "pods": {"<uid>": "ann"}, "groups": {"ann": ["ml"]}}

``pods`` are those that have proven whose they are in a hub, and ``groups`` those of these users there. ``counted`` is a
number of milliseconds since the start of the machine that ``boot`` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from .. import strict
from ..quantity import format_milli
from .account import Account, read_account
from .hub_user import MAX_NAME, read_groups
from .owner import Owner
from .times import format_gpu_hours

T = TypeVar("T")

FORMAT = 1
MAX_BYTES = 32 * 1024 * 1024
"""Most bytes of the file: some ten thousand users."""
MAX_ACCOUNTS = 100_000
STALE = 180.0
"""Seconds after which GPU-hours count as not counted any more: the file is written each minute at least."""


class MachineAccounts(NamedTuple):
    """The accounts of all users of a machine at one moment."""

    boot: str
    counted: float
    """Seconds since that boot until which everything is counted."""
    accounts: Mapping[Owner, Account]
    pods: Mapping[str, str] = MappingProxyType({})
    """The user in a hub, by uid of the pod: of each pod that has proven it."""
    groups: Mapping[str, frozenset[str]] = MappingProxyType({})
    """The groups in the hub, by name of these users."""

    def is_current(self, boot: str, at: float) -> bool:
        """Tell whether GPU-hours are being counted ``at`` seconds since ``boot``."""
        return self.boot == boot and self.counted - STALE <= at < self.counted + STALE

    def encode(self) -> str:
        """Return the text of the file."""
        body = {
            "format": FORMAT,
            "boot": self.boot,
            "counted": round(self.counted * 1000),
            "items": [_item(self.accounts[owner]) for owner in sorted(self.accounts)],
            "pods": dict(self.pods),
            "groups": {name: sorted(groups) for name, groups in self.groups.items()},
        }
        return strict.dumps(body) + "\n"


def read_accounts(text: bytes) -> MachineAccounts:
    """Read the file; raises `FieldError`.

    A day whose use can't be read counts as more than any budget, as in a cluster.
    """
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file")
    strict.required(body, "format", strict.integer(FORMAT, FORMAT))
    found = strict.required(body, "items", strict.list_of(_read_item, MAX_ACCOUNTS))
    return MachineAccounts(
        boot=strict.required(body, "boot", strict.text(64)),
        counted=strict.required(body, "counted", strict.integer(0, strict.MAX_GENERATION)) / 1000,
        accounts={account.owner: account for account in found},
        pods=_mapping(body, "pods", strict.text(MAX_NAME)),
        groups={name: frozenset(groups) for name, groups in _mapping(body, "groups", read_groups).items()},
    )


def _mapping(body: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    found = strict.optional(body, key, strict.an_object) or {}
    return {name: strict.required(found, name, read) for name in found}


def _item(account: Account) -> dict[str, Any]:
    hours = {day.isoformat(): str(format_gpu_hours(account.hours[day])) for day in sorted(account.hours)}
    return {"spec": account.spec(), "status": {"used": format_milli(account.used), "hours": hours}}


def _read_item(value: Any, key: str) -> Account:
    account = read_account(value)
    if account is None:
        raise strict.FieldError("An account is of no owner.", key)
    return account
