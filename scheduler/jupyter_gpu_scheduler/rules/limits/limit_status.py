"""Pure: the status of limits: what the owners that each is about have and wait for, and what is wrong with it.

Members of a group are counted together, though the limit is for each by itself. The default is about owners of whom no
other limit speaks; the cap is about all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_gpu.model.limits.changes import format_time
from jupyter_gpu.model.limits.conflicts import CONFLICTING, OVERRIDDEN, UNREADABLE, LimitCondition
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import format_milli

_OURS = (CONFLICTING, OVERRIDDEN, UNREADABLE)


class Use(NamedTuple):
    """The GPUs of an owner, or of all owners that a limit is about; in milli."""

    used: int = 0
    waiting: int = 0


_NONE = Use()


class UseByLimit:
    """The sums of the owners' use, by name of the limit: a change of one owner costs what that owner's limits cost."""

    def __init__(self, limits: LimitIndex) -> None:
        self._limits = limits
        self._owners: dict[Owner, tuple[Use, tuple[str, ...]]] = {}
        self._sums: dict[str, Use] = {}

    def put(self, owner: Owner, use: Use) -> tuple[str, ...]:
        """Note the use of an owner, and which limits are about it now; return the names of limits that changed."""
        before, names = self._owners.pop(owner, (_NONE, ()))
        after = about(self._limits, owner) if use != _NONE else ()
        if after:
            self._owners[owner] = (use, after)
        for name in names:
            self._add(name, -before.used, -before.waiting)
        for name in after:
            self._add(name, use.used, use.waiting)
        same = use == before
        return tuple(dict.fromkeys(name for name in (*names, *after) if not (same and name in names and name in after)))

    def of(self, name: str) -> Use:
        """Return what the owners that a limit is about have and wait for."""
        return self._sums.get(name, _NONE)

    def _add(self, name: str, used: int, waiting: int) -> None:
        before = self.of(name)
        after = self._sums[name] = Use(before.used + used, before.waiting + waiting)
        if after == _NONE:
            del self._sums[name]


def about(limits: LimitIndex, owner: Owner) -> tuple[str, ...]:
    """Return the names of the limits that are about ``owner``."""
    found = {limit.object_name: limit.subject.kind for limit in limits.of(owner) if limit.subject}
    everyone = (SubjectKind.DEFAULT, SubjectKind.CAP)
    named = any(kind not in everyone for kind in found.values())
    return tuple(name for name, kind in found.items() if not (named and kind is SubjectKind.DEFAULT))


def status_changes(
    status: Mapping[str, Any], use: Use, conditions: Sequence[LimitCondition], *, generation: int, now: float
) -> dict[str, Any]:
    """Return the fields of the ``status`` of a limit that must be written, as a merge patch; empty: none.

    ``generation`` is that of the object whose conditions these are; ``now`` is in seconds since 1970. Conditions of
    types that are not ours stay, and one that goes on keeps its time.
    """
    listed = status.get("conditions")
    before = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    times = {one.get("type"): one.get("lastTransitionTime") for one in before if one.get("status") == "True"}
    ours = [
        {
            **one.to_json(),
            "lastTransitionTime": times.get(one.type) or format_time(int(now)),
            "observedGeneration": generation,
        }
        for one in sorted(conditions, key=lambda one: one.type)
    ]
    wanted = {
        "used": format_milli(use.used),
        "waiting": format_milli(use.waiting),
        "conditions": [*(one for one in before if one.get("type") not in _OURS), *ours],
    }
    now_written = {"conditions": [], **status}
    return {key: value for key, value in wanted.items() if now_written.get(key) != value}
