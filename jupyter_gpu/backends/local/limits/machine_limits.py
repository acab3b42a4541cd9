"""The limits of this machine, as its administrator has set them: one file, read again whenever it changed.

    /etc/jupyter/jupyter_gpu_limits.json    root's; where it is, it alone counts
    <state>/limits.json                     without that one: of root, or of the owner of the state directory

The second is for containers that share the state directory and not ``/etc``. Without a file there are no limits. If one
can't be used the limits that were read last hold; a server that has read none hands out nothing until it can.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.backends.local.processes.identity import boot, since_boot
from jupyter_gpu.backends.local.records.other_pods import OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.common import admin_file, limits_file
from jupyter_gpu.common.machine_users import Users
from jupyter_gpu.common.machine_zone import machine_zone
from jupyter_gpu.model import strict

from .user_accounts import NOT_COUNTED, UserAccounts

if TYPE_CHECKING:  # most machines have no limits, and a server must start fast
    from jupyter_gpu.model.limits.index import LimitIndex
    from jupyter_gpu.model.limits.limit import Limit
    from jupyter_gpu.model.limits.owner import Owner

    from .rules.meters import Meters, Moment
    from .rules.owner_terms import UserLimits

NAME = "limits.json"
"""Name of the file in the state directory, which is gone after a reboot on most machines."""
ABSENT = 2.0
"""Seconds after which a file that is gone counts as removed: editors replace files by removing them first."""

_MAX_PROBLEM = 1000

_log = logging.getLogger(__name__)


class MachineLimits:
    """The limits of one machine as one server knows them; used by its worker thread.

    ``hub``: whether the server was started by a hub whose servers all run as one user.
    """

    def __init__(self, state: Path, machine: Path = limits_file.MACHINE, *, hub: bool = False) -> None:
        self._state = state
        self._machine = machine
        self._users = Users()
        self._limits: tuple[Limit, ...] = ()
        self._reclaims = False
        self._read: bytes | None = None
        self._seen: tuple[object, ...] | None = None
        self._gone: float | None = None
        self._index: LimitIndex | None = None
        self._index_of: object = None
        self._zone: tzinfo | None = None
        self._accounts = UserAccounts(state, hub=hub)
        self._file_problem = ""

    @property
    def problem(self) -> str:
        """Sentence on why the file, or a budget in it, is not used; empty: all is, or there is none."""
        return self._file_problem or ("" if self._accounts.counted else NOT_COUNTED)

    @property
    def in_use(self) -> bool:
        """Whether there are limits."""
        return bool(self._limits)

    @property
    def paths(self) -> tuple[Path, Path]:
        """The places of the file, the first that counts first."""
        return self._machine, self._state / NAME

    @property
    def recheck(self) -> float | None:
        """Seconds until the file must be looked for again, as it may have been removed; ``None``: not."""
        return None if self._gone is None else max(0.0, self._gone + ABSENT - time.monotonic())

    def is_changed(self) -> bool:
        """Tell whether the file is another than the one that was read. Any thread may ask."""
        return self._signature() != self._seen or self._accounts.is_awaited()

    def reload(self) -> bool:
        """Read the file if it changed; return whether other limits hold from now on."""
        seen = self._signature()
        if seen == self._seen and self._gone is None:
            return False
        before, problem = self._limits, self._file_problem
        self._seen = seen
        try:
            self._take(self._found())
        except strict.FieldError as error:
            self._keep(str(error))
        if self._file_problem and self._file_problem != problem:
            _log.warning("%s", self._file_problem)
        return self._limits != before

    def learn(self, others: Iterable[OtherPod]) -> None:
        """Look up the users of this server and of the others, where there are limits. May block."""
        if self._limits:
            self._users.learn({os.geteuid(), *(other.owner for other in others)})

    def of(self, own: Record, others: Iterable[OtherPod]) -> UserLimits | None:
        """Return the limits of this moment for these pods; ``None``: there are none."""
        if not self._limits:
            self._accounts.counted = True  # there is no budget that needs it
            return None
        from .rules.meters import Moment
        from .rules.owner_terms import UserLimits

        numbers, started = {own.uid: os.geteuid()}, {own.uid: float(own.server.start)}
        for other in others:
            numbers[other.uid], started[other.uid] = other.owner, float(other.record.server.start)
        in_hub, groups_in_hub = self._accounts.hub_users(boot())
        owners = {uid: self._owner(in_hub.get(uid) or self._users.get(number).name) for uid, number in numbers.items()}
        groups = {user.name: user.groups for user in map(self._users.get, set(numbers.values()))}
        for name in {in_hub[uid] for uid in owners if uid in in_hub}:
            groups[name] = groups.get(name, frozenset()) | groups_in_hub.get(name, frozenset())
        moment = Moment(boot(), since_boot(), time.time(), self._time_zone())
        meters = self._meters(moment)
        return UserLimits(
            self._indexed(groups),
            owners,
            started,
            moment.zone,
            moment.now,
            used={owner: meter.used for owner, meter in (meters or {}).items()},
            counted_until=None if meters is None else self._accounts.until(moment),
            reclaims=self._reclaims,
        )

    def _meters(self, moment: Moment) -> Meters | None:
        """Return the GPU time of all users; ``None`` where no budget needs it, or it is not being counted."""
        from jupyter_gpu.model.limits.machine_file import has_budget

        if not any(map(has_budget, self._limits)):
            self._accounts.counted = True
            return None
        return self._accounts.meters(moment)

    def _owner(self, name: str) -> Owner:
        from jupyter_gpu.model.limits.machine_file import HUB
        from jupyter_gpu.model.limits.owner import Owner

        return Owner("User", name, HUB)

    def _indexed(self, groups: Mapping[str, frozenset[str]]) -> LimitIndex:
        """Return the limits with the groups of users; made anew only if one of them changed."""
        from jupyter_gpu.model.limits.index import LimitIndex
        from jupyter_gpu.model.limits.machine_file import uncounted, with_members

        made_of = (self._limits, groups, counted := self._accounts.counted)
        if self._index is None or self._index_of != made_of:
            limits = self._limits if counted else uncounted(self._limits)
            self._index, self._index_of = LimitIndex(with_members(limits, groups)), made_of
        return self._index

    def _found(self) -> admin_file.AdminFile | None:
        machine, state = self.paths
        with _missing():
            return admin_file.read(machine, {0}, limits_file.MAX_BYTES)
        with _missing():
            return admin_file.read(state, {0, self._state.stat().st_uid}, limits_file.MAX_BYTES)
        return None

    def _take(self, found: admin_file.AdminFile | None) -> None:
        if found is None:
            self._removed()
            return
        self._gone = None
        from jupyter_gpu.model.limits.machine_file import limits_of, problems, reclaims

        self._users.learn({found.owner})
        limits = limits_of(found.text, self._users.get(found.owner).name, found.changed)
        for problem in problems(limits) if limits != self._limits else ():
            _log.warning("%s", problem)
        self._reclaims = reclaims(found.text)
        self._limits, self._read, self._file_problem = limits, found.text, ""

    def _removed(self) -> None:
        """Lift the limits once the file has been away for a while."""
        now = time.monotonic()
        if self._limits and self._gone is None:
            self._gone = now
        elif self._gone is None or now >= self._gone + ABSENT:
            self._limits, self._read, self._gone, self._file_problem = (), None, None, ""

    def _keep(self, why: str) -> None:
        self._gone = None
        kept = "The limits that were read last hold until it is corrected"
        if self._read is None:
            from jupyter_gpu.model.limits.machine_file import NOTHING

            self._limits, kept = NOTHING, "No GPUs are handed out until it is corrected"
        self._file_problem = strict.printable(
            f"The limits of this machine can't be used. {why} {kept}; then it is read by itself.", _MAX_PROBLEM
        )

    def _time_zone(self) -> tzinfo:
        self._zone = self._zone or machine_zone()
        return self._zone

    def _signature(self) -> tuple[object, ...]:
        return tuple(map(admin_file.signature, self.paths))


def _missing() -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(FileNotFoundError, NotADirectoryError)
