"""Follows the ``GpuLimit`` objects, also while their kind is absent or being deleted.

Deleting a CustomResourceDefinition deletes all objects of its kind, one by one. To a watch this looks as if an
administrator had removed each limit. So a removal counts only once the definition is known to be there and to stay:
Kubernetes marks a definition as being deleted before it deletes the objects. Until then the last known limits hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.kube import Kube, KubeError, NotFound, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.limits.limit import LIMITS, Limit
from jupyter_gpu.model.limits.read_limit import read_limit

RECHECK_SECONDS = 5.0
"""Seconds between two reads of the definition while removed limits hold."""

_log = logging.getLogger(__name__)


class LimitWatch:
    """The limits as the API server has them. ``put`` is called with each new or changed limit, ``remove`` with the name
    of one that an administrator removed, and ``trouble`` as `Reflector` calls ``on_trouble``.
    """

    def __init__(
        self,
        kube: Kube,
        put: Callable[[Limit], None],
        remove: Callable[[str], None],
        trouble: Callable[[str], None],
        *,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._kube = kube
        self._put = put
        self._remove = remove
        self._recheck_seconds = recheck_seconds
        self._removed: dict[str, None] = {}
        self._objects: dict[str, Mapping[str, Any]] = {}  # by name
        self._changed_names: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._reported = ""
        self._reflector = Reflector(
            kube, Selection(paths.limits(), optional=True), on_change=self._changed, on_trouble=trouble, newest=True
        )

    @property
    def synced(self) -> asyncio.Event:
        """Set once all limits are known, or that the cluster has no such kind."""
        return self._reflector.synced

    @property
    def absent(self) -> bool:
        """Whether the cluster does not have the kind now."""
        return self._reflector.absent

    @property
    def trouble(self) -> str:
        """Reason the limits can't be followed now; empty while they can."""
        return self._reflector.trouble

    @property
    def held(self) -> int:
        """Number of limits that hold although their objects were deleted with their kind, for an alert."""
        return len(self._removed)

    def known(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON of a limit as it was seen last; ``None`` where there is no such object."""
        return self._objects.get(name)

    def take_changed(self) -> tuple[str, ...]:
        """Return the names of the objects that came, changed or went since the last call."""
        found = tuple(self._changed_names)
        self._changed_names.clear()
        return found

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._confirm_removals())
            tasks.create_task(self._report_absence())

    def _changed(self, change: ObjectChange) -> None:
        name = objects.name(change.object)
        self._changed_names[name] = None
        if change.kind == "removed":
            self._removed[name] = None
            self._objects.pop(name, None)
            self._wake.set()
        else:
            self._removed.pop(name, None)
            self._objects[name] = change.object
            self._put(read_limit(change.object))

    async def _confirm_removals(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._removed:
                names = tuple(self._removed)  # a later removal may be the first one of a deleted definition
                if await self._is_defined():
                    for name in names:
                        if name in self._removed:
                            del self._removed[name]
                            self._remove(name)
                else:
                    await asyncio.sleep(self._recheck_seconds)

    async def _is_defined(self) -> bool:
        """Tell whether the definition is there, and is not being deleted."""
        try:
            definition = await self._kube.get(paths.definition(LIMITS))
        except NotFound:
            why = "their CustomResourceDefinition is gone"
        except KubeError as error:
            why = f"their CustomResourceDefinition can't be read ({error.message})"
        else:
            if not objects.deleting(definition):
                self._reported = ""
                return True
            why = "their CustomResourceDefinition is being deleted"
        if why != self._reported:
            _log.error("%d removed limits still hold: %s. Install it again to change limits.", self.held, why)
            self._reported = why
        return False

    async def _report_absence(self) -> None:
        await self.synced.wait()
        if self.absent:
            _log.warning(
                "The cluster has no GpuLimits (its CustomResourceDefinition is missing), so there are no limits."
            )
