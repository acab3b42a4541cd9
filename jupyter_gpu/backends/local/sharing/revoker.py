"""Revocation of shares: from the enforcer's request to the file for the pod's server, as long as it is in force.

Revocations are files beside the sockets of their pods, so that the next arbiter knows them. What blocks is done in a
thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import identify
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.server import paths as share_paths

from . import trust
from .clients import Clients
from .ending import end
from .rules import revocation
from .rules.revocation import Revocation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RevocationRequest:
    """A share that the enforcer wants to take away."""

    gpu: str
    pod: str
    reason: str
    processes: frozenset[ProcessId]
    """Processes of the share that the server knew."""
    pids: frozenset[int]
    """Pids of all processes that used the GPU, as the driver saw it."""


class Revoker:
    """The revocations for the pods of ``clients``, kept in ``folder``. ``changed``: `carry_out` is due again."""

    def __init__(self, state: Path, folder: Path, clients: Clients, changed: Callable[[], None]) -> None:
        self._state = state
        self._folder = folder
        self._clients = clients
        self._changed = changed
        self._requests: list[RevocationRequest] = []
        self._revocations: dict[str, tuple[Revocation, ...]] = {}
        self._untold: set[str] = set()

    @property
    def taken(self) -> set[tuple[str, str]]:
        """Pods and GPUs of the known revocations."""
        return {(pod, one.gpu) for pod, revocations in self._revocations.items() for one in revocations}

    def request(self, request: RevocationRequest) -> None:
        """Take up a request, to be carried out soon."""
        self._requests.append(request)
        self._changed()

    def recall(self, pod: str) -> None:
        """Read, in a thread, the revocations that an earlier arbiter made for a pod that is new here."""
        if pod not in self._revocations:
            self._revocations[pod] = self._read(pod)

    async def carry_out(self) -> set[tuple[str, str]]:
        """Carry out new revocations, forget those no longer in force. Return pods and GPUs that are not served now.

        A revocation is forgotten one turn before the share is served again, so that the enforcer sees the share go.
        """
        requests, self._requests = self._requests, []
        taken = self.taken | {(one.pod, one.gpu) for one in requests}
        if await asyncio.to_thread(self._carry_out, requests):
            self._changed()
        return taken

    def _carry_out(self, requests: list[RevocationRequest]) -> bool:
        """Do that in a thread; return whether a revocation came or went."""
        changed = {one.pod for one in requests if self._revoke(one)}
        for pod, revocations in list(self._revocations.items()):
            known = self._clients.pods.get(pod)
            left = tuple(one for one in revocations if known and revocation.is_in_force(one, known.record))
            if left != revocations:
                changed.add(pod)
            self._revocations[pod] = left
        self._untold |= changed
        self._untold -= {pod for pod in self._untold if self._tell(pod)}
        for pod in [pod for pod, left in self._revocations.items() if not left and pod not in self._untold]:
            del self._revocations[pod]
        return bool(changed)

    def _revoke(self, one: RevocationRequest) -> bool:
        """Make a revocation and end its processes, unless there is one already."""
        self._revocations[one.pod] = known = self._revocations.get(one.pod) or self._read(one.pod)
        if any(other.gpu == one.gpu for other in known):
            return False
        others = (identify(pid) for pid in one.pids if self._clients.pod_of(pid) == one.pod)
        spared = {*self._clients.servers(), identify(os.getpid())}
        processes = tuple(sorted({*one.processes, *filter(None, others)} - spared))
        self._revocations[one.pod] = (*known, Revocation(uuid.uuid4().hex, one.gpu, one.reason, processes))
        end(processes)
        return True

    def _tell(self, pod: str) -> bool:
        """Write the pod's file and notify its server to read it; return whether it could be written."""
        try:
            with share_paths.opened(self._folder / pod) as folder:
                share_paths.replace(folder, revocation.NAME, revocation.encode(self._revocations[pod]))
        except OSError as error:
            _log.warning("Pod %s cannot be told that its share is taken away: %s", pod, error)
            return False
        notify.send(self._state / "pods", [f"{pod}.sock"])
        return True

    def _read(self, pod: str) -> tuple[Revocation, ...]:
        user = os.geteuid()
        try:
            home = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with trust.within(home, user, pod, share_paths.FOLDER) as folder:
                return revocation.decode(trust.read(folder, revocation.NAME, user, revocation.MAX_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            _log.warning("What was decided about pod %s cannot be read: %s", pod, error)
            return ()
