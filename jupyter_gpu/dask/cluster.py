"""Dask on the attached GPUs: a scheduler, one worker for each GPU, and a thread that follows what is attached.

Those of this node are processes of this program, as the worker of `gpu.run` is: they have its Python and its
environment, are held to the same GPUs, and end with it; those of other nodes are of a kernel there, as it does.
All of them listen on their node alone and let in nobody who has not their key. The scheduler's pages are shown by the
Jupyter server, behind its login.
"""

from __future__ import annotations

import atexit
import base64
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import distributed

from jupyter_gpu.common import rendezvous
from jupyter_gpu.dask.away import LAST, Away, AwayWorker
from jupyter_gpu.dask.child import GRACE, Child
from jupyter_gpu.dask.comm import PlaceBackend
from jupyter_gpu.dask.keeper import Keeper
from jupyter_gpu.dask.process import security
from jupyter_gpu.dask.retiring import PATIENCE, retire
from jupyter_gpu.dask.rules.follow import attached, steps
from jupyter_gpu.dask.rules.keeping import unmoved
from jupyter_gpu.dask.rules.targets import HERE
from jupyter_gpu.dask.rules.words import Keep, Schedule, Work
from jupyter_gpu.dask.standby import Standby
from jupyter_gpu.kernel.client import Client
from jupyter_gpu.kernel.follower import ViewFollower
from jupyter_gpu.kernel.own_holds import FOLLOWING
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.view import View
from jupyter_gpu.remote import certificates
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.own_worker import visible_values
from jupyter_gpu.remote.pod_workers import PodWorkers
from jupyter_gpu.remote.rules.keeping import HERE as PLACE_HERE
from jupyter_gpu.remote.rules.keeping import Choice

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds between two looks after workers that ended or are held."""
CONNECT = 10.0
"""Seconds that the scheduler may take to answer a new client."""
FIRST = 10.0
"""Seconds that a new client waits for workers of other nodes: later they come by themselves."""
AGAIN = 10.0
"""Seconds after which a node is tried again that could not be used, and GPUs that were not given back after all."""
DAYS = 3650
"""Days that the certificate is valid: as long as a program may run."""


class UserClient(distributed.Client):
    """A client that knows where the Jupyter server shows the scheduler's pages."""

    def __init__(self, page: str, address: str, **settings: Any) -> None:
        self._page = page
        super().__init__(address, **settings)  # type: ignore[no-untyped-call] # it has no types

    @property
    def dashboard_link(self) -> str:
        """The path of Dask's dashboard on the Jupyter server; empty if that is not known."""
        return self._page


@dataclass
class Worker:
    """A worker of one GPU."""

    child: Child | AwayWorker
    held: bool = False
    """Whether it only has results that nothing else can take."""

    @property
    def works(self) -> bool:
        """Whether it takes tasks: it has started, and is not held."""
        return not self.held and bool(self.child.address)


class Cluster:
    """The scheduler and the workers of this program. Raises `WorkerLost` if the scheduler ends as it starts."""

    def __init__(self, client: Callable[[], Client], view: View) -> None:
        self._standby = Standby(time.monotonic())
        self._certificate = certificates.make(DAYS)
        self._text = base64.b64encode(self._certificate.pem).decode()
        self._view, self._follower = view, ViewFollower(client)
        self._workers: dict[str, Worker] = {}
        self._pods, self._away = PodWorkers(client), dict[str, Away]()
        self._later: dict[str, float] = {}
        """Places that could not be used, with the time at which it is tried again."""
        self._emptied: tuple[View | None, float] = None, 0.0
        """The view whose GPUs are about to be given back, all of them, and until when they have no workers for that."""
        self._changed, self._turns = threading.Condition(), threading.Lock()
        self._ended, self._news = False, False
        self._own: Any = None
        self._keeper: Keeper | None = None
        self._page, pages = _pages(client())
        scheme = f"gpu{secrets.token_hex(4)}"
        self._scheduler = Child(Schedule(self._text, scheme, pages))
        self._backend: PlaceBackend | None = None
        try:
            self._scheduler.wait()
            self._backend = PlaceBackend(scheme, HERE, self._scheduler.ready.gateway)
            self._backend.register()
            self._own = self._client(set_as_default=False, name="jupyter-gpu")
            ready = self._scheduler.ready
            self._keeper = Keeper(self._own, Keep(self._text, ready.address, ready.gateway))
            self.turn()
            with self._changed:
                self._changed.wait_for(self._begun, FIRST)
        except BaseException:
            self.close()
            raise
        for job in (self._hear, self._keep):
            threading.Thread(target=job, name="jupyter-gpu-dask", daemon=True).start()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forget)

    @property
    def lives(self) -> bool:
        """Whether the scheduler has not ended, by itself or by `Client.shutdown`."""
        return not self._ended and self._scheduler.lives and self._own.status == "running"

    def client(self) -> distributed.Client:
        """Return a new client of the user. Raises OSError if the scheduler is about to end."""
        return self._client()

    def make_room(self) -> None:
        """Retire all workers, before all GPUs are given back. Raises `WorkerRefused` if results would be lost."""
        with self._turns:
            if not self.lives or not self._workers:
                return
            working = frozenset(uuid for uuid, worker in self._workers.items() if not worker.held)
            self._hold(working, held=True)
            if why := self._keep_results(self._workers, again=True):
                self._hold(working, held=False)
                advice = gettext(
                    "Fetch them and drop their futures, or end Dask with client.shutdown(); then give the GPUs back."
                )
                raise WorkerRefused(f"{why} {advice}")
            self._retire(frozenset(self._workers))
            self._emptied = self._view, time.monotonic() + AGAIN

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            if self._ended:
                return
            self._ended = True
            self._changed.notify_all()
        self._follower.end()
        atexit.unregister(self.close)
        with self._turns:
            if self._own is not None:
                with suppress(Exception):  # its scheduler may have ended
                    self._own.close(timeout=1)
            grace = GRACE
            if not self._scheduler.lives:  # nor does the gateway: none can leave in order, and nobody waits for that
                grace = 0
                for away in self._away.values():
                    away.close()
            for uuid in list(self._workers):
                self._drop(uuid, grace)
            self._standby.end()
            if self._keeper is not None:
                self._keeper.end(grace)
            for wait in (0, LAST):  # all at once
                for away in self._away.values():
                    away.close(wait)
            self._pods.close()
            self._scheduler.end()
            if self._backend is not None:
                self._backend.forget()

    def turn(self) -> None:
        """Bring the workers in line with the GPUs."""
        with self._turns:
            if self._ended:
                return
            self._bury()
            view, workers = self._view, self._workers
            emptied, until = self._emptied
            gpus = {} if view is emptied and time.monotonic() < until else attached(view)
            held = {uuid for uuid, worker in workers.items() if worker.held}
            todo = steps(gpus.keys(), workers.keys() - held, held)
            self._start(todo.start, gpus, view)
            self._hold(todo.resume, held=False)
            self._retire(todo.retire)
            self._leave()
            if self._keeper is not None:
                self._keeper.look(working=any(worker.works for worker in workers.values()))
            self._standby.look(time.monotonic())

    def _client(self, **options: Any) -> distributed.Client:
        keys = security(self._certificate.pem)
        return UserClient(self._page, self._scheduler.address, security=keys, timeout=CONNECT, **options)

    def _begun(self) -> bool:
        """Tell whether each worker can be used, or has ended."""
        return all(worker.child.address or not worker.child.lives for worker in self._workers.values())

    def _start(self, uuids: frozenset[str], gpus: Mapping[str, Choice], view: View) -> None:
        """Start workers, all at once; what could not start is tried again."""
        started: dict[str, Child] = {}
        for uuid in uuids:
            place = gpus[uuid].place
            if time.monotonic() < self._later.get(place, 0):
                continue
            word = self._word(gpus[uuid], view)
            if place == PLACE_HERE:
                started[uuid] = self._standby.work(word, time.monotonic())
            else:
                self._workers[uuid] = Worker(self._at(place).start(word))
        for uuid, child in started.items():
            try:
                child.wait()
            except WorkerLost as error:
                log.warning("%s", error)
                continue
            self._workers[uuid] = Worker(child)
            FOLLOWING.add(child.pid)

    def _at(self, place: str) -> Away:
        """Return the kernel of a place that starts workers."""
        if place not in self._away:
            self._away[place] = Away(self._pods, place, self._text, self._own.run_on_scheduler, self._hear_of_others)
        return self._away[place]

    def _word(self, gpu: Choice, view: View) -> Work:
        """Return the first word to a worker of a GPU."""
        scheduler, ((uuid, _),) = self._scheduler.ready, gpu.gpus
        name = f"{uuid}/{os.urandom(3).hex()}"  # an earlier one of the same GPU may still be about to end
        visible = visible_values(gpu.gpus, view, gpu.place)
        if gpu.place != PLACE_HERE:
            return Work(self._text, scheduler.address, name, (), gpu.place, 0, visible)
        path = tuple(folder or "." for folder in sys.path)
        return Work(self._text, scheduler.address, name, path, HERE, scheduler.gateway, visible)

    def _bury(self) -> None:
        """Forget workers that ended; another one starts for the same GPU, where none could start a while later."""
        for place, away in list(self._away.items()):
            if away.failed:
                away.failed = False
                self._later[place] = time.monotonic() + AGAIN
            if not away.lives:
                del self._away[place]
        for uuid in [uuid for uuid, worker in self._workers.items() if not worker.child.lives]:
            self._drop(uuid, 0)

    def _leave(self) -> None:
        """End the kernels that have no workers any more."""
        used = {worker.child.away for worker in self._workers.values() if isinstance(worker.child, AwayWorker)}
        for place in [place for place, away in self._away.items() if away not in used]:
            self._away.pop(place).close()

    def _drop(self, uuid: str, grace: float = GRACE) -> None:
        child = self._workers.pop(uuid).child
        child.end(grace)
        FOLLOWING.discard(child.pid)

    def _retire(self, gpus: frozenset[str]) -> None:
        """End workers whose results could be moved, and hold the others."""
        for uuid in [uuid for uuid in gpus if not self._workers[uuid].child.address]:
            self._drop(uuid, 0)  # it had not started
        gpus &= self._workers.keys()
        if not gpus:
            return
        new = [uuid for uuid in gpus if not self._workers[uuid].held]
        self._hold(gpus, held=True)  # before: a worker that cannot retire has the state again that it had
        why = "" if any(worker.works for worker in self._workers.values()) else self._keep_results(gpus)
        addresses = {self._workers[uuid].child.address: uuid for uuid in gpus}
        for address in self._own.run_on_scheduler(retire, list(addresses), PATIENCE):
            self._drop(addresses[address])
        if any(uuid in self._workers for uuid in new):
            advice = gettext("So its GPU is not given back. Fetch them and drop their futures, or add a GPU.")
            log.warning("%s", f"{why} {advice}" if why else unmoved(PATIENCE))

    def _keep_results(self, gpus: Iterable[str], *, again: bool = False) -> str:
        """Gather results of the last workers at a process without a GPU; return why not, or an empty text."""
        assert self._keeper is not None
        return self._keeper.take([self._workers[uuid].child.address for uuid in gpus], again=again)

    def _hold(self, gpus: frozenset[str], *, held: bool) -> None:
        """Have workers take no new tasks, or take them again."""
        changed = [self._workers[uuid] for uuid in gpus if self._workers[uuid].held != held]
        if changed:
            status = distributed.Status.paused if held else distributed.Status.running
            self._own.run_on_scheduler(_set_status, status.name, [worker.child.address for worker in changed])
        for worker in changed:
            worker.held = held

    def _hear(self) -> None:
        for new in self._follower.views(self._view):
            if isinstance(new, GpuError):
                log.info("Changes of the GPUs are not heard of now, and it is tried again: %s", new)
                continue
            with self._changed:
                self._view = new
                self._changed.notify_all()

    def _hear_of_others(self) -> None:
        with self._changed:
            self._news = True
            self._changed.notify_all()

    def _keep(self) -> None:
        seen = self._view
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self._news or self._view is not seen, LOOK)  # noqa: B023
                if self._ended:
                    return
                seen, self._news = self._view, False
            if not self._scheduler.lives:
                self.close()
                return
            try:
                self.turn()
            except Exception:  # the next turn is tried as well
                log.exception("The Dask workers could not be brought in line with the GPUs.")

    def _forget(self) -> None:
        self._ended = True
        for worker in self._workers.values():
            worker.child.forget()
        self._standby.forget()
        if self._keeper is not None:
            self._keeper.forget()
        self._scheduler.forget()


def _pages(client: Client) -> tuple[str, tuple[str, ...]]:
    """Return the address of the scheduler's pages on the Jupyter server, and the socket where that finds them."""
    server, name = client.server, secrets.token_hex(8)
    if not server.file:  # it does not run on this machine, or it cannot have files of ours
        return "", ()
    path = rendezvous.dask_socket(Path(server.file).parent, name)
    return f"{server.base}{rendezvous.DASK}{name}/status", (str(path),)


def _set_status(status: str, addresses: Sequence[str], dask_scheduler: Any) -> None:
    """Set the status of workers, in the scheduler: it tells them by the way by which it tells them to retire."""
    for address in addresses:
        if (state := dask_scheduler.workers.get(address)) is not None:  # else it has just ended
            dask_scheduler.handle_worker_status_change(status, state, "jupyter-gpu")
            word = {"op": "worker-status-change", "status": status, "stimulus_id": "jupyter-gpu"}
            dask_scheduler.stream_comms[address].send(word)
