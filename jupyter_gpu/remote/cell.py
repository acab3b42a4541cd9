"""One cell of the notebook in a kernel of a worker, whose namespace stays for the next one.

What the cell reads goes there, unless it is there already and unchanged; what it assigns comes back, or stays there
with a handle (`rules.shipping` decides). A cell is never run twice: it may have had effects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jupyter_gpu.model.message import Message, gettext
from jupyter_gpu.model.quantity import format_bytes
from jupyter_gpu.model.view import View
from jupyter_gpu.remote import calls, codec
from jupyter_gpu.remote.codec import Chunk, Measured, Namespace
from jupyter_gpu.remote.connection import Connection, Listener, Watched
from jupyter_gpu.remote.errors import CannotSend, WorkerLost
from jupyter_gpu.remote.handles import Handle, Handles
from jupyter_gpu.remote.moves import NotBroughtError, bring
from jupyter_gpu.remote.newest import Newest
from jupyter_gpu.remote.own_worker import OwnWorker, Seat, Wanted
from jupyter_gpu.remote.rules import shipping
from jupyter_gpu.remote.rules.keeping import HERE
from jupyter_gpu.remote.rules.names import CellNames
from jupyter_gpu.remote.rules.shipping import Back, Sending, There
from jupyter_gpu.remote.sources import MOST_BYTES, MOST_MODULES


@dataclass(frozen=True)
class CellCode:
    """A cell as it is sent."""

    source: str
    names: CellNames
    number: int
    """The number of the notebook's cell; tracebacks there name it."""
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()


def _say(message: Message) -> None:
    print(message, file=sys.stderr)


class Cell:
    """One cell: what it needs is measured when it is made, and it runs once."""

    def __init__(
        self, worker: OwnWorker, handles: Handles, newest: Newest[Seat], space: Namespace, code: CellCode
    ) -> None:
        """Raises `CannotSend` and `WorkerLost`, where it is known before there are GPUs that it cannot run."""
        self._worker, self._handles, self._newest, self._space, self._code = worker, handles, newest, space, code
        self._ticket = worker.ticket()
        wanted = (code.names.reads | code.inputs) - shipping.OF_SHELL
        self._here: Measured = codec.measure(space, wanted)
        self._find_lost()
        failed = {name: why for name, why in self._here.failed.items() if not newest.holders(name)}
        if failed:
            raise self._refusal(Sending(refused=failed))

    def run(self, wanted: Wanted, view: View, *, ends: bool) -> None:
        """Run it with the GPUs that it wants; raises what the cell raises, and `WorkerLost`.

        ``ends``: the worker's kernel ends with it, so nothing can stay there.
        """
        seat = self._worker.take(self, self._ticket, wanted, view, lambda: False)
        try:
            self._find_lost()  # with a kernel that ended in favour of this one
        except WorkerLost:
            self._worker.rest(self)
            raise
        try:
            self._run(seat, ends)
        except WorkerLost as error:
            note = gettext("The cell may have had effects and is not run again. What was only there is lost.")
            if seat.place == HERE:
                seat.lose()
            else:  # perhaps it is the connection only
                note = gettext("The cell may have had effects and is not run again. What was only there is used again "
                               "if that worker is found again.")  # fmt: skip
            error.add_note(note)
            raise
        finally:
            if said := seat.end_sentence():
                _say(said)
            self._worker.rest(self)

    def _run(self, seat: Seat, ends: bool) -> None:
        connection, code = seat.connection, self._code
        assert connection is not None
        plan, handles = self._send(seat, connection)
        outputs = code.outputs
        done = False
        try:
            needed = {*plan.send, *plan.keep, *handles}
            watch = Watched(code.names.assigns, code.names.deletes, needed, plan.forget, code.number)
            reply = connection.run(code.source, self._listener(seat), watch=watch)["content"]
            outcome = connection.outcome(code.names.assigns | outputs if ends else outputs)
            self._bring(seat, connection, outcome, ends)
            done = True
        finally:
            if not done:  # an interrupt, or what could not be told: only what is newer there is known to be there
                seat.there = {name: entry for name, entry in seat.there.items() if entry.newer}
                for name in seat.there:
                    self._newest.used(name, seat)
        if reply["status"] != "ok":
            raise self._error(connection, reply)

    def _listener(self, seat: Seat) -> Listener:
        assert seat.shown is not None
        return seat.shown.listener(alone=True)

    @property
    def _wanted(self) -> frozenset[str]:
        """The names that the cell may need, and what its functions use."""
        code = self._code
        return (code.names.reads | self._here.uses.reads | code.inputs) - shipping.OF_SHELL

    def _find_lost(self) -> None:
        """Tell of values that only an ended worker had."""
        for name in self._newest.lost(self._wanted, self._here.fingerprints):
            if name not in self._space and name in self._handles.by_name:
                self._handles.by_name[name].get()  # its error
            _say(gettext("%1 was newer in the worker, which has ended: the cell gets the notebook's.", name))
            self._newest.forget(name)
            self._handles.by_name.pop(name, None)

    def _send(self, seat: Seat, connection: Connection) -> tuple[Sending, Set[str]]:
        """Send what the cell needs and is not there; return that, and the names for which it has handles."""
        here, newest, names, inputs = self._here, self._newest, self._code.names, self._code.inputs
        handles = {
            name for name in here.elsewhere if name not in here.pickled or _is_handle(self._space.get(name), name)
        }
        held = newest.held({*self._wanted, *here.elsewhere})
        elsewhere = {name: kernels[0].there[name] for name, kernels in held.items() if seat not in kernels}
        own = {name for name in seat.there if seat in newest.holders(name)}
        seat.there = there = shipping.current(seat.there, own)
        reads = CellNames(reads=names.reads | here.uses.reads)
        needed = shipping.wanted(reads, inputs, self._space.keys(), there.keys() | elsewhere.keys())
        needed = (needed | here.pickled.keys() | here.failed.keys()) - handles
        known = shipping.moved(needed, here.fingerprints, elsewhere, inputs & self._space.keys())
        known |= {name: There(elsewhere[name].here, newer=True) for name in handles & elsewhere.keys()}
        plan = shipping.sending(needed, here.fingerprints, here.failed, {**there, **known}, here.groups, inputs)
        if plan.refused:
            raise self._refusal(plan)
        unwatched = [
            name
            for name, value in here.pickled.items()
            if not value.quick and not isinstance(self._space[name], codec.NEVER_CHANGED)
        ]
        if inputs:  # the user knows
            names = replace(names, unseen=())
        for message in shipping.said_before(names, plan, unwatched, self._code.outputs):
            _say(message)
        send_modules(seat, names.modules | here.uses.modules)
        for chunks in (self._moved(known), codec.chunks(self._space, here, plan.send)):  # handles stand for the first
            if chunks and (failed := connection.push(chunks, self._listener(seat))):
                name, reason = min(failed.items())
                raise CannotSend(gettext("%1, which the cell uses, cannot be read by the worker: %2.", name, reason))
        there.update({name: There(here.fingerprints[name]) for name in plan.send})
        for name in plan.forget:
            del there[name]
        for name in (*plan.send, *plan.forget):  # a handle is of what the worker had before
            self._handles.by_name.pop(name, None)
            newest.forget(name)
        for name in known:
            there[name] = elsewhere[name]
            newest.copied(name, seat)
            if before := self._handles.by_name.get(name):
                self._handles.add(handle_of(seat, newest, self._space, name, before.type, before.size))
        return plan, handles & there.keys()

    def _moved(self, names: Collection[str]) -> list[Chunk]:
        """Return values of other workers, which are newer than those of the notebook. Raises `CannotSend`."""
        try:
            found = bring(self._worker, self._newest, names, alone=True)
        except NotBroughtError as error:
            raise CannotSend(gettext("The newest value of %1 is in the worker on %2 and cannot be brought: %3. "
                                     "The cell was not run; -i %1 gives it the notebook's.",
                                     error.name, error.where, error.reason)) from None  # fmt: skip
        return [chunk for one in found for chunk in one.chunks]

    def _bring(self, seat: Seat, connection: Connection, outcome: Mapping[str, Any], ends: bool) -> None:
        """Take over what the cell did, and tell of what stays there."""
        space, there, outputs = self._space, seat.there, self._code.outputs
        assigned, changed = set(outcome["assigned"]), set(outcome["changed"])
        wanted = set(outcome["present"]) if not ends else (assigned | outputs) & set(outcome["present"])
        plan = shipping.back(outcome["sizes"], outcome["failed"], wanted, large=outcome["large"])
        for name in outcome["deleted"]:
            for known in (space, there, self._handles.by_name):
                known.pop(name, None)
            self._newest.forget(name)
        before = codec.measure(space, assigned - changed, follow=False).fingerprints
        for name in assigned | changed:
            there[name] = There(before.get(name, there.get(name, There()).here), newer=True)
            self._newest.changed(name, seat)
        for name in outcome["unwatched"]:
            self._newest.used(name, seat)
        stay = dict(plan.stay)
        brought: set[str] = set()
        if plan.bring:
            chunks, failed, _ = connection.pull(plan.bring, self._listener(seat), host_copies=True)
            unread = codec.load(space, chunks)
            brought = set(plan.bring) - failed.keys() - unread.keys()
            stay |= {name: gettext("it cannot be sent: %1", why) for name, why in {**failed, **unread}.items()}
        after = codec.measure(space, brought, follow=False).fingerprints
        for name in brought:
            there[name] = There(after.get(name))
            self._handles.by_name.pop(name, None)
            self._newest.forget(name)
        for name in stay:
            kind, size = outcome["kinds"].get(name, "object"), outcome["sizes"].get(name)
            self._handles.add(handle_of(seat, self._newest, space, name, kind, size))
        self._tell(Back(plan.bring, stay), changed - brought, outputs - brought - stay.keys(), ends)

    def _tell(self, back: Back, changed: Set[str], missing: Set[str], ends: bool) -> None:
        if ends:
            for name, reason in back.stay.items():
                _say(gettext("%1 is lost with the process, which took the GPUs for this cell only: %2. "
                             "It can stay if gpu.resize takes them before.", name, reason))  # fmt: skip
            back = Back(back.bring)
        for message in shipping.said_after(back, changed):
            _say(message)
        for name in sorted(missing):
            _say(gettext("There is no %1 in the worker, which -o names.", name))

    def _refusal(self, plan: Sending) -> CannotSend:
        return CannotSend(" ".join(shipping.said_before(CellNames(), plan)))

    def _error(self, connection: Connection, reply: Mapping[str, Any]) -> BaseException:
        """Return the error of the cell, which IPython shows with the traceback of the worker."""
        error = calls.raised(connection, self._space, reply, "__import__('sys').last_value")
        if not isinstance(error, KeyboardInterrupt):
            lines = list(reply["traceback"])
            show: Callable[[], list[str]] = lambda: lines  # noqa: E731 - as IPython calls it
            error._render_traceback_ = show  # type: ignore[attr-defined]
        return error


def _is_handle(value: object, name: str) -> bool:
    """Tell whether a variable is the handle of a worker's value of its own name."""
    return isinstance(value, codec.Elsewhere) and value.name == name


def send_modules(seat: Seat, modules: Set[str]) -> None:
    """Send what code imports when it runs in a kernel, and is not there."""
    assert seat.connection is not None
    assert seat.sources is not None
    if found := seat.sources.named(modules):
        seat.connection.reload(found)
    if seat.sources.left_out:
        _say(gettext("The code may import more modules of the notebook's folder than are sent to another node "
                     "(%1, %2): import those that it needs here before.",
                     MOST_MODULES, format_bytes(MOST_BYTES)))  # fmt: skip


def before_here(newest: Newest[Seat], space: Namespace, names: CellNames) -> None:
    """Tell of values that workers have newer, before a cell runs here; raises `CannotSend` if there is none here."""
    found = newest.held(names.reads - shipping.OF_SHELL)
    here = codec.measure(space, found, follow=False).fingerprints
    for name, kernels in found.items():
        kernel = kernels[0]
        if name not in space:
            raise CannotSend(gettext("%1 is in the worker on %2, and this cell runs in the notebook: "
                                     "gpu.remote.%1.get() brings it.", name, kernel.where))  # fmt: skip
        if here.get(name) == kernel.there[name].here:
            _say(gettext("%1 may be newer in the worker on %2: this cell runs in the notebook and has the notebook's.",
                         name, kernel.where))  # fmt: skip


def handle_of(
    seat: Seat, newest: Newest[Seat], space: Namespace, name: str, kind: str, size: int | None = None
) -> Handle:
    """Return the handle of a value that stays in a kernel of the worker."""
    connection = seat.connection
    assert connection is not None
    drop = partial(dropped, newest, seat)
    made = Handle(name, connection.address.where, kind, size, partial(fetched, newest, seat, space), drop)
    seat.handles.append(made)
    return made


def fetched(newest: Newest[Seat], seat: Seat, space: Namespace, name: str) -> Any:
    """Return a value that stayed in a worker, from the kernel that has the newest; it is bound to no name.

    Raises `CannotSend` and `WorkerLost`.
    """
    holders = newest.holders(name)
    connection = (seat if seat in holders or not holders else holders[0]).connection
    assert connection is not None
    chunks, failed, _ = connection.pull([name], host_copies=True)
    found, unread = codec.loaded(space, chunks)
    for why in (failed, unread):
        if name in why:
            raise CannotSend(gettext("%1 cannot be sent: %2.", name, why[name]))
    if name not in found:
        raise WorkerLost(gettext("%1 is no longer in the worker.", name))
    return found[name]


def forget_old(newest: Newest[Seat], seat: Seat) -> None:
    """Delete values of a kernel that are newer in another one: a handle in a call stands for the newest only."""
    old = [name for name, entry in seat.there.items() if entry.newer and seat not in newest.holders(name)]
    for name in old:
        _deleted(seat, name)


def dropped(newest: Newest[Seat], seat: Seat, name: str) -> None:
    """Delete a value that stayed in a worker, and copies of it that others got."""
    for kernel in {seat, *newest.holders(name)}:
        _deleted(kernel, name)
    newest.forget(name)


def _deleted(seat: Seat, name: str) -> None:
    seat.there.pop(name, None)
    if seat.connection is not None:
        seat.connection.run(f"globals().pop({name!r}, None); None")
