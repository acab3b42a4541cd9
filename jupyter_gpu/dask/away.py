"""The Dask workers of another node, children of a kernel there that this program starts (`attendant`)."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from ast import literal_eval
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.dask.child import GRACE
from jupyter_gpu.dask.rules.words import Attend, Attending, Await, Drop, Living, Ready, Work
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import versions
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.pod_workers import PodWorkers
from jupyter_gpu.remote.rules import packages
from jupyter_gpu.remote.rules.control import Word, read

T = TypeVar("T", bound=Word)
LOOK = 1.0
"""Seconds between two looks after workers that ended."""
LAST = 2.0
"""Seconds for the end of a kernel there."""
SHIPPED = 2**20
"""Bytes of Dask's connections that are told at least: its heartbeats alone are no news."""
CODE = "from jupyter_gpu.dask.attendant import take"
log = logging.getLogger(__name__)


class AwayWorker:
    """A Dask worker of another node."""

    pid = 0
    """It is no process of this machine."""

    def __init__(self, away: Away, name: str) -> None:
        self.away, self.name = away, name
        self.address = ""
        """The address at which it is reached; empty until it can be used."""
        self.lives, self.said = True, False
        """Whether it has not ended yet, as far as was seen, and whether it was started there."""

    def end(self, _grace: float = GRACE) -> None:
        """End it, soon."""
        if self.lives:
            self.away.say(Drop((self.name,)))

    def forget(self) -> None:
        """Leave it to the program that this one was forked from."""


class Away:
    """The kernel in a worker of the pod, and what it started. A thread speaks with it, so that nobody waits for it.

    ``scheduler`` runs a function in Dask's scheduler. ``changed`` is called when a worker can be used, or has ended.
    """

    def __init__(
        self,
        pods: PodWorkers,
        place: str,
        certificate: str,
        scheduler: Callable[..., Any],
        changed: Callable[[], object],
    ) -> None:
        self.place = place
        self.lives, self.failed = True, False
        """``failed``: it, or a worker there, could not start."""
        self._closed = False
        self._pods, self._name = pods, f"dask-{secrets.token_hex(8)}"
        self._scheduler, self._changed = scheduler, changed
        self._words: queue.SimpleQueue[Work | Await | Drop | None] = queue.SimpleQueue()
        self._workers: dict[str, AwayWorker] = {}
        job = partial(self._run, Attend(certificate, place), str(Path.cwd()))
        self._thread = threading.Thread(target=job, name="jupyter-gpu-dask", daemon=True)
        self._thread.start()

    def start(self, word: Work) -> AwayWorker:
        """Start a worker, soon."""
        made = self._workers[word.name] = AwayWorker(self, word.name)
        made.lives = self.lives
        self.say(word)
        self.say(Await(word.name))
        return made

    def say(self, word: Work | Await | Drop | None) -> None:
        """Have a word said, soon; ``None`` ends the kernel there, and all workers with it."""
        self._words.put(word)

    def close(self, patience: float = 0.0) -> None:
        """End it, and wait for that only so long."""
        self._closed = True
        self.say(None)
        self._thread.join(patience)

    def _run(self, first: Attend, folder: str) -> None:
        """Speak with the kernel until it ends. A kernel there that has no client ends by itself."""
        connection: Connection | None = None
        try:
            connection = self._pods.connect(self.place, self._name, folder)
            if why := packages.refusal(versions.loaded(), connection.begin()):
                raise WorkerRefused(why)
            port = self._ask(connection, first, Attending).port
            self._scheduler(_lead, self.place, connection.address.address, port)
            while (word := self._next()) is not None:
                self._told(connection, word)
        except (WorkerLost, WorkerRefused, GpuError) as error:
            self.failed = connection is None or isinstance(error, WorkerRefused)
            if not self._closed:
                log.warning("%s", error)
        except Exception:
            self.failed = True
            log.exception("The Dask workers of another node have ended.")
        finally:
            self.lives = False
            for worker in list(self._workers.values()):
                worker.lives = False
            self._changed()
            if connection is not None:
                self._pods.kill(self.place, self._name, LAST)
                connection.leave()
            with suppress(Exception):  # the scheduler may have ended
                self._ship(1)
                self._scheduler(_lead, self.place, "", 0)

    def _next(self) -> Work | Await | Drop | None:
        """Return what is to be said next: if there is nothing, the question who lives."""
        try:
            return self._words.get(timeout=LOOK)
        except queue.Empty:
            self._ship(SHIPPED)
            return Drop(())

    def _ship(self, least: int) -> None:
        self._pods.shipped(self.place, self._scheduler(_moved, self.place, least))

    def _told(self, connection: Connection, word: Work | Await | Drop) -> None:
        """Say a word, and see from the answer which workers can be used, and which have ended."""
        try:
            if isinstance(word, Await):
                if (worker := self._workers.get(word.name)) is not None:
                    worker.address = self._ask(connection, word, Ready).address
                    self._changed()
                return
            if isinstance(word, Work):
                self._workers[word.name].said = True
            living = self._ask(connection, word, Living).names
        except WorkerRefused as error:  # it ended as it started
            self.failed = True
            log.warning("%s", error)
            living = self._ask(connection, Drop(()), Living).names
        for worker in [one for one in list(self._workers.values()) if one.said and one.name not in living]:
            worker.lives = False
            del self._workers[worker.name]
            self._changed()

    def _ask(self, connection: Connection, word: Word, kind: type[T]) -> T:
        content = {
            "code": CODE,
            "silent": True,  # it has a secret key
            "store_history": False,
            "user_expressions": {"answer": f"take({word.dump().decode()!r}, get_ipython().kernel.parent.run)"},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        reply = connection.request("execute_request", content)["content"]
        found = reply.get("user_expressions", {}).get("answer", reply)
        if found.get("status") != "ok":
            raise WorkerRefused(
                gettext("The worker could not do that: %1: %2", found.get("ename"), found.get("evalue"))
            )
        try:
            return read(str(literal_eval(found["data"]["text/plain"])).encode(), kind)
        except (strict.FieldError, ValueError, KeyError, SyntaxError) as error:
            raise WorkerLost(
                gettext("The answer of the worker on %1 cannot be read: %2", connection.address.where, error)
            ) from None


def _lead(place: str, address: str, port: int, dask_scheduler: Any) -> None:
    """Lead the gateway beside the scheduler to that of another node, or nowhere (port 0)."""
    dask_scheduler.gateway.lead(place, address, port)


def _moved(place: str, least: int, dask_scheduler: Any) -> int:
    """Return the bytes that the gateway beside the scheduler handed on to and from another node, if so many."""
    return int(dask_scheduler.gateway.moved(place, least))
