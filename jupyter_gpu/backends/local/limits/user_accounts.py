"""The accounts that the process of root publishes for servers (`accounting`): GPU-hours of users, and users of a hub.

It is in ``<state>/accounts.json``, a file of root, or of the owner of the state directory. Where nothing counts
GPU-hours, every budget counts as used up. A pod that has not proven to be of a user of a hub is of the machine's user.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.common import admin_file, limits_file
from jupyter_gpu.model import strict

if TYPE_CHECKING:  # most machines have no budgets, and a server must start fast
    from jupyter_gpu.model.limits.machine_accounts import MachineAccounts

    from .rules.meters import Meters, Moment

NOT_COUNTED = (
    "GPU-hours of this machine's users are not being counted, so every budget counts as used up. Root must keep "
    "python -m jupyter_gpu.backends.local.accounting running."
)
_log = logging.getLogger(__name__)


class UserAccounts:
    """The accounts of one state directory; used by the worker thread of one server.

    ``hub``: whether the server was started by a hub whose servers all run as one user.
    """

    def __init__(self, state: Path, *, hub: bool) -> None:
        self._hub = hub
        self.path = state / limits_file.ACCOUNTS
        self._stored: MachineAccounts | None = None
        self._seen: object = None
        self.counted = True
        """Whether GPU-hours were being counted when they were needed last."""

    def is_awaited(self) -> bool:
        """Tell whether the file has something new for this server. Any thread may ask.

        Where GPU-hours are counted, a server foresees them; who is who in a hub it can't.
        """
        return (self._hub or not self.counted) and admin_file.signature(self.path) != self._seen

    def hub_users(self, boot: str) -> tuple[Mapping[str, str], Mapping[str, frozenset[str]]]:
        """Return the users in a hub by uid of the pod, and their groups by name."""
        self._read()
        stored = self._stored
        return (stored.pods, stored.groups) if stored and stored.boot == boot else ({}, {})

    def meters(self, moment: Moment) -> Meters | None:
        """Return the GPU time of all users until now; ``None`` where it is not being counted."""
        from .rules.meters import resumed

        self._read()
        stored = self._stored
        counted = stored is not None and stored.is_current(moment.boot, moment.at)
        if self.counted and not counted:
            _log.warning("%s", NOT_COUNTED)
        self.counted = counted
        return resumed(stored, moment) if stored and counted else None

    def until(self, moment: Moment) -> float:
        """Return when they are not current any more, unless they are written again, in seconds since 1970."""
        from jupyter_gpu.model.limits.machine_accounts import STALE

        assert self._stored is not None
        return moment.now + self._stored.counted + STALE - moment.at

    def _read(self) -> None:
        seen = admin_file.signature(self.path)
        if seen == self._seen:
            return
        self._seen, self._stored = seen, None
        from jupyter_gpu.model.limits.machine_accounts import MAX_BYTES, read_accounts

        try:
            found = admin_file.read(self.path, {0, self.path.parent.stat().st_uid}, MAX_BYTES)
            self._stored = read_accounts(found.text)
        except (FileNotFoundError, NotADirectoryError):
            return
        except strict.FieldError as error:
            _log.warning("The GPU-hours in %s can't be used. %s", self.path, error)
