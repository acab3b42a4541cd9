"""The Dask workers of another node, children of a kernel there that this program starts (`attendant`)."""

from __future__ import annotations

import secrets
from ast import literal_eval
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from jupyter_gpu.dask.child import GRACE
from jupyter_gpu.dask.rules.words import Attend, Attending, Await, Drop, Living, Ready, Work
from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import versions
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.pod_workers import PodWorkers
from jupyter_gpu.remote.rules import packages
from jupyter_gpu.remote.rules.control import Word, read

T = TypeVar("T", bound=Word)
LAST = 2.0
"""Seconds for the end of a kernel there."""
CODE = "from jupyter_gpu.dask.attendant import take"


class Away:
    """The kernel in a worker of the pod, and what it started. Raises `WorkerLost`, `WorkerRefused` and `GpuError`."""

    def __init__(self, pods: PodWorkers, place: str, certificate: str) -> None:
        self.place, self.workers = place, dict[str, AwayWorker]()
        self._pods, self._name = pods, f"dask-{secrets.token_hex(8)}"
        self.lives = True
        self._connection = pods.connect(place, self._name, str(Path.cwd()))
        try:
            if why := packages.refusal(versions.loaded(), self._connection.begin()):
                raise WorkerRefused(why)
            port = self._ask(Attend(certificate, place), Attending).port
        except BaseException:
            self.close()
            raise
        self.route = self._connection.address.address, port
        """The address and port of its gateway."""

    def start(self, word: Work) -> AwayWorker:
        """Start a worker; raises `WorkerLost` and `WorkerRefused`."""
        self._ask(word, Living)
        made = self.workers[word.name] = AwayWorker(self, word.name)
        return made

    def wait(self, name: str) -> str:
        """Wait until a worker can be used; return where it is reached. Raises `WorkerLost` and `WorkerRefused`."""
        return self._ask(Await(name), Ready).address

    def look(self, ends: Iterable[str] = ()) -> None:
        """End some workers, and see which ones live. Where it cannot be reached, it and all of them have ended."""
        try:
            living = self._ask(Drop(tuple(ends)), Living).names if self.lives else ()
        except (WorkerLost, WorkerRefused):
            living = ()
            self.close()
        self.workers = {name: worker for name, worker in self.workers.items() if name in living}

    def close(self) -> None:
        """End the kernel there, and all workers with it."""
        if not self.lives:
            return
        self.lives = False
        self.workers.clear()
        self._pods.kill(self.place, self._name, LAST)
        self._connection.leave()

    def forget(self) -> None:
        """Leave it to the program that this one was forked from."""
        self.lives = False

    def _ask(self, word: Word, kind: type[T]) -> T:
        content = {
            "code": CODE,
            "silent": True,  # it has a secret key
            "store_history": False,
            "user_expressions": {"answer": f"take({word.dump().decode()!r}, get_ipython().kernel.parent.run)"},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        reply = self._connection.request("execute_request", content)["content"]
        found = reply.get("user_expressions", {}).get("answer", reply)
        if found.get("status") != "ok":
            raise WorkerRefused(
                gettext("The worker could not do that: %1: %2", found.get("ename"), found.get("evalue"))
            )
        try:
            return read(str(literal_eval(found["data"]["text/plain"])).encode(), kind)
        except (strict.FieldError, ValueError, KeyError, SyntaxError) as error:
            raise WorkerLost(
                gettext("The answer of the worker on %1 cannot be read: %2", self._connection.address.where, error)
            ) from None


class AwayWorker:
    """A Dask worker of another node."""

    pid = 0
    """It is no process of this machine."""

    def __init__(self, away: Away, name: str) -> None:
        self._away, self._name = away, name
        self.address = ""
        """The address at which it is reached; empty before `wait`."""

    def wait(self) -> None:
        """Wait until it can be used. Raises `WorkerLost` and `WorkerRefused`."""
        self.address = self._away.wait(self._name)

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet, as far as was seen."""
        return self._away.workers.get(self._name) is self

    def end(self, _grace: float = GRACE) -> None:
        """End it."""
        if self.lives:
            self._away.look([self._name])

    def forget(self) -> None:
        """Leave it to the program that this one was forked from."""
        self._away.forget()
