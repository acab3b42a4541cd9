"""One leader among several processes, by a Lease object of the cluster.

Clocks of other machines are not trusted: a candidate takes the lease only after it has seen it unchanged for the
duration on its own clock. The leader counts from *before* it sent its last successful renewal, and stops leading
when that is `renew` seconds ago: before another process may take over. Every write has the resource version as a
precondition, so of two processes that try only one succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.rules import objects, paths

from .client import Kube
from .errors import Conflict, KubeError, NotFound

_log = logging.getLogger(__name__)


def _end_process() -> None:
    os._exit(1)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of an election, in seconds."""

    duration: float = 15
    """Until others may take a lease that is not renewed."""
    renew: float = 10
    """Without a successful renewal until the leader stops."""
    retry: float = 2
    """Between attempts."""

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.renew < self.duration:
            raise ValueError("A lease needs 0 < retry < renew < duration, so that one leader ends before the next.")


class LeaderLease:
    """A candidate for one lease; ``identity`` must be its own, such as the pod's name and uid.

    ``abort`` is called as the last resort if ``lead`` does not end between ``renew`` and ``duration``; the default ends
    this process.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes,
        abort: Callable[[], None] = _end_process,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._times = times
        self._abort = abort
        self._seen: tuple[str, str, float] | None = None  # uid and version of the object, and when it was new to us
        self._lease: dict[str, Any] = {}
        self.leading = False
        """Whether this process leads now."""

    @property
    def holder(self) -> str:
        """Identity of the leader, as far as this process has seen; empty: there is none."""
        return _holder(self._lease)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election again and again; while elected, ``lead`` runs. Returns or raises when ``lead`` does.

        When the lease is lost ``lead`` is cancelled, and this process is a candidate like any other again.
        """
        while True:
            held_since = await self._stand()
            self.leading = True
            _log.info("%s leads (%s).", self._identity, self._name)
            leading = asyncio.ensure_future(lead())
            try:
                lost = await self._hold(leading, held_since)
            finally:
                self.leading = False
                if await self._end(leading):
                    await self._release()
            if not lost:
                return leading.result()
            _log.warning("%s does not lead any more (%s).", self._identity, self._name)

    # -- a candidate ---------------------------------------------------------------------------------------------------

    async def _stand(self) -> float:
        """Stand until elected; return since when, on our clock."""
        clock = asyncio.get_running_loop().time
        while True:
            before = clock()
            try:
                async with asyncio.timeout(self._times.renew):
                    if await self._take(before):
                        return before
            except (KubeError, TimeoutError) as error:
                if not isinstance(error, Conflict):
                    _log.warning("The lease %s can't be had now: %s", self._name, error)
            await asyncio.sleep(self._times.retry * random.uniform(0.8, 1.2))  # noqa: S311 - no secret

    async def _take(self, now: float) -> bool:
        try:
            self._lease = await self._kube.get(paths.lease(self._namespace, self._name))
        except NotFound:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": self._spec(transitions=0, acquired=True),
            }
            self._lease = await self._kube.create(paths.leases(self._namespace), body)
            return True
        version = (objects.uid(self._lease), objects.resource_version(self._lease))
        if self._seen is None or self._seen[:2] != version:
            self._seen = (*version, now)
        expired = now - self._seen[2] >= max(self._times.duration, _seconds(self._lease))
        if self.holder not in ("", self._identity) and not expired:
            return False
        transitions = self._lease.get("spec", {}).get("leaseTransitions") or 0
        await self._write(self._spec(transitions=transitions + 1, acquired=True))
        return True

    # -- the leader ----------------------------------------------------------------------------------------------------

    async def _hold(self, leading: asyncio.Future[None], renewed: float) -> bool:
        """Renew the lease while ``leading`` runs; return whether it was lost."""
        clock = asyncio.get_running_loop().time
        while True:
            pause = min(self._times.retry, max(0.0, renewed + self._times.renew - clock()))
            done, _ = await asyncio.wait((leading,), timeout=pause)
            if done:
                return False
            before = clock()
            try:
                async with asyncio.timeout(renewed + self._times.renew - before):
                    await self._write(self._spec())
                renewed = before
            except Conflict:
                if await self._taken(renewed):
                    return True
            except (KubeError, TimeoutError) as error:
                if clock() >= renewed + self._times.renew:
                    _log.warning("The lease %s could not be renewed: %s", self._name, error)
                    return True

    async def _taken(self, renewed: float) -> bool:
        """Tell whether the lease is lost after a conflict: an earlier renewal of ours may have arrived unnoticed."""
        try:
            async with asyncio.timeout(max(0.001, renewed + self._times.renew - asyncio.get_running_loop().time())):
                found = await self._kube.get(paths.lease(self._namespace, self._name))
        except (KubeError, TimeoutError) as error:
            return isinstance(error, NotFound | TimeoutError)
        if _holder(found) != self._identity:
            return True  # `_lease` stays the version of our own: a release must fail if another has it
        self._lease = found
        return False

    async def _end(self, leading: asyncio.Future[None]) -> bool:
        """End ``leading`` before another process may begin; return whether it ended in time."""
        if leading.done():
            return True
        leading.cancel()
        margin = (self._times.duration - self._times.renew) * 0.8
        done, _ = await asyncio.wait((leading,), timeout=margin)
        if not done:
            _log.critical("What leads did not end in %.1f s after the lease was lost: this process ends.", margin)
            self._abort()
        elif not leading.cancelled() and (error := leading.exception()):
            _log.warning("The leader's work failed while it ended.", exc_info=error)
        return bool(done)

    async def _release(self) -> None:
        """Release the lease, so that another need not wait for the duration. Does nothing if another has it by now."""
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._times.retry):
                await self._write({**self._spec(), "holderIdentity": "", "leaseDurationSeconds": 1})

    # -- the object ----------------------------------------------------------------------------------------------------

    def _spec(self, *, transitions: int | None = None, acquired: bool = False) -> dict[str, Any]:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._times.duration)),
            "renewTime": now,
        }
        if transitions is not None:
            spec["leaseTransitions"] = transitions
        if acquired:
            spec["acquireTime"] = now
        return spec

    async def _write(self, spec: Mapping[str, Any]) -> None:
        precondition = {key: self._lease.get("metadata", {}).get(key) for key in ("uid", "resourceVersion")}
        body = {"metadata": precondition, "spec": spec}
        self._lease = await self._kube.patch(paths.lease(self._namespace, self._name), body)


def identity(environ: Mapping[str, str]) -> str:
    """Return this process's name in an election: its pod's name, so that a restarted container goes on at once."""
    return environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _holder(lease: Mapping[str, Any]) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _seconds(lease: Mapping[str, Any]) -> float:
    """Return the duration that the holder wrote: its settings may differ from ours."""
    value = (lease.get("spec") or {}).get("leaseDurationSeconds")
    return float(value) if isinstance(value, int) else 0.0
