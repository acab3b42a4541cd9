"""Revocation of shares: from the bouncer's accusation to a verdict for the pod's server, until it stands no longer.

Verdicts are files beside the sockets of their pods, so that the next arbiter knows them. What blocks is done in a
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

from jupyter_gpu.backends.local import notify
from jupyter_gpu.backends.local.process_id import identify
from jupyter_gpu.backends.local.sharing.rules import revocation
from jupyter_gpu.backends.local.sharing.rules.revocation import Verdict
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares import paths as share_places

from . import trust
from .clients import Clients
from .ending import end

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accusation:
    """A share that the bouncer wants to be taken away."""

    gpu: str
    pod: str
    reason: str
    members: frozenset[ProcessId]
    """Processes of the share that the server knew."""
    pids: frozenset[int]
    """Pids of all processes that used the GPU, as the driver saw it."""


class Sentencing:
    """The verdicts on the pods of ``clients``, kept in ``folder``. ``changed``: `carry_out` is due again."""

    def __init__(self, state: Path, folder: Path, clients: Clients, changed: Callable[[], None]) -> None:
        self._state = state
        self._folder = folder
        self._clients = clients
        self._changed = changed
        self._accused: list[Accusation] = []
        self._verdicts: dict[str, tuple[Verdict, ...]] = {}
        self._untold: set[str] = set()

    @property
    def taken(self) -> set[tuple[str, str]]:
        """Pods and GPUs of the verdicts that are known."""
        return {(pod, one.gpu) for pod, judged in self._verdicts.items() for one in judged}

    def accuse(self, accusation: Accusation) -> None:
        """Take up an accusation, to be carried out soon."""
        self._accused.append(accusation)
        self._changed()

    def recall(self, pod: str) -> None:
        """Recall, in a thread, the verdicts of an earlier arbiter on a pod that is new here."""
        if pod not in self._verdicts:
            self._verdicts[pod] = self._read(pod)

    async def carry_out(self) -> set[tuple[str, str]]:
        """Carry out new verdicts and forget those that no longer stand. Returns pods and GPUs that are not served now.

        A verdict is forgotten one turn before the share is served again, so that the bouncer sees the share go.
        """
        accused, self._accused = self._accused, []
        taken = self.taken | {(one.pod, one.gpu) for one in accused}
        if await asyncio.to_thread(self._carry_out, accused):
            self._changed()
        return taken

    def _carry_out(self, accused: list[Accusation]) -> bool:
        """Do that in a thread; return whether a verdict came or went."""
        news = {one.pod for one in accused if self._convict(one)}
        for pod, judged in list(self._verdicts.items()):
            known = self._clients.pods.get(pod)
            left = tuple(one for one in judged if known and revocation.stands(one, known.record))
            if left != judged:
                news.add(pod)
            self._verdicts[pod] = left
        self._untold |= news
        self._untold -= {pod for pod in self._untold if self._tell(pod)}
        for pod in [pod for pod, left in self._verdicts.items() if not left and pod not in self._untold]:
            del self._verdicts[pod]
        return bool(news)

    def _convict(self, one: Accusation) -> bool:
        """Make a verdict and end its processes, unless there is one already."""
        self._verdicts[one.pod] = known = self._verdicts.get(one.pod) or self._read(one.pod)
        if any(other.gpu == one.gpu for other in known):
            return False
        others = (identify(pid) for pid in one.pids if self._clients.pod_of(pid) == one.pod)
        spared = {*self._clients.servers(), identify(os.getpid())}
        guilty = tuple(sorted({*one.members, *filter(None, others)} - spared))
        self._verdicts[one.pod] = (*known, Verdict(uuid.uuid4().hex, one.gpu, one.reason, guilty))
        end(guilty)
        return True

    def _tell(self, pod: str) -> bool:
        """Write the pod's file and poke its server to read it; return whether it could be written."""
        try:
            with share_places.opened(self._folder / pod) as folder:
                share_places.replace(folder, revocation.NAME, revocation.encode(self._verdicts[pod]))
        except OSError as error:
            _log.warning("Pod %s cannot be told that its share is taken away: %s", pod, error)
            return False
        notify.poke(self._state / "pods", [f"{pod}.sock"])
        return True

    def _read(self, pod: str) -> tuple[Verdict, ...]:
        user = os.geteuid()
        try:
            home = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            with trust.within(home, user, pod, share_places.FOLDER) as folder:
                return revocation.decode(trust.read(folder, revocation.NAME, user, revocation.MAX_BYTES))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            _log.warning("What was decided about pod %s cannot be read: %s", pod, error)
            return ()
