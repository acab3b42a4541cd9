"""Calls of functions in a worker: the function and its arguments go there with what it uses, its result comes back.

The function reads the notebook's values of now, as if it was called here. What it assigns to global names stays in the
worker, like every change of an argument.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import codec
from jupyter_gpu.remote.codec import Chunk, Elsewhere, Namespace, Pickled, TooLarge
from jupyter_gpu.remote.connection import Connection, Listener
from jupyter_gpu.remote.errors import CannotSend, WorkerLost, WorkerRefused

CALL, RESULT, ERROR, ASIDE = "_gpu_call", "_gpu_result", "_gpu_error", "_gpu_aside"
"""Names in the worker's namespace during a call: what is called, what it returned, what it raised, and values of cells
in whose place the call has its own.
"""
_SPACE = threading.Lock()
"""Held while a name of ours is in the notebook's namespace: several calls may run at once."""
_CODE = f"""
try:
    {RESULT} = {CALL}[0](*{CALL}[1], **{CALL}[2])
except BaseException as {ERROR}_:
    {ERROR} = {ERROR}_.with_traceback(None)
    raise
finally:
    del {CALL}
"""
_END = f"""
globals().update(globals().pop({ASIDE!r}, {{}}))
globals().pop({RESULT!r}, None), globals().pop({ERROR!r}, None), globals().pop({CALL!r}, None); None
"""


class Prepared(NamedTuple):
    """A call as it is sent."""

    chunks: list[Chunk]
    modules: frozenset[str]
    """Modules that the functions import when they are called."""
    elsewhere: Mapping[str, Elsewhere]
    """The values of workers in it, by name."""


def prepare(
    space: Namespace,
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
) -> Prepared:
    """Return what is called, and the global names that it uses, directly or through functions that it uses.

    ``space`` is the namespace of the notebook. Raises `CannotSend` if something cannot be sent.
    """
    with _SPACE:
        space[CALL] = (function, tuple(arguments), dict(named or {}))  # by name: functions are those of this namespace
        try:
            found = codec.measure(space, {CALL})
            if CALL in found.failed:
                raise _unsent_part(space, found.failed)
            if found.failed:
                raise _unsent(found.failed)
            return Prepared(codec.chunks(space, found, found.pickled), found.uses.modules, found.elsewhere)
        finally:
            del space[CALL]


def pickled(space: Namespace, value: Any) -> Pickled:
    """Return a value as bytes, named as what is called; raises what its pickling does."""
    with _SPACE:
        space[CALL] = value
        try:
            return codec.pickled(space, (CALL,))
        finally:
            del space[CALL]


def restored(space: Namespace, chunk: Chunk, elsewhere: Mapping[str, Elsewhere]) -> Any:
    """Return the value of such bytes, with the same values of workers in it; raises `CannotSend`."""
    found, failed = codec.loaded(space, [chunk], elsewhere)
    if failed:
        raise _unsent(failed)
    return found[CALL]


def perform(
    connection: Connection,
    space: Namespace,
    prepared: Sequence[Chunk],
    listener: Listener | None = None,
    limit: int | None = None,
    kept: Collection[str] = (),
    stays: str | None = None,
) -> Any:
    """Call what was prepared in the worker and return its result.

    Names that are ``kept``, as cells use them, have the same values there afterwards. If the result ``stays`` there
    under a name, the name of its type is returned.

    Raises what the function raises; `CannotSend` if something could not be loaded there, and then it was not called, or
    if the result cannot be sent; `TooLarge` if it has more than ``limit`` bytes; `WorkerLost`; KeyboardInterrupt.
    """
    aside = sorted({name for chunk in prepared for name in chunk.names} & set(kept) - {stays})
    try:
        if aside:
            connection.run(f"{ASIDE} = {{name: globals()[name] for name in {aside!r} if name in globals()}}")
        if failed := connection.push(prepared, listener):
            raise _unsent(failed)
        reply = connection.run(_CODE, listener)["content"]
        if reply["status"] == "ok":
            return _pulled(connection, space, RESULT, limit, listener) if stays is None else _named(connection, stays)
        error = raised(connection, space, reply, ERROR)
        if not isinstance(error, KeyboardInterrupt):
            error.add_note("In the worker:\n" + "\n".join(reply["traceback"]))
        raise error
    finally:
        with suppress(WorkerLost):  # a result that is here counts
            connection.run(_END)


def _named(connection: Connection, name: str) -> str:
    """Give the result a name there; return the name of its type."""
    reply = connection.run(f"{name} = {RESULT}", expressions={"kind": f"type({RESULT}).__name__"})["content"]
    return str(ast.literal_eval(reply["user_expressions"]["kind"]["data"]["text/plain"]))


def _unsent(why: Mapping[str, str]) -> CannotSend:
    """Return the error for names that cannot be sent, with the reason of one."""
    name, reason = min(why.items())
    if name == CALL:
        return CannotSend(gettext("The function or one of its arguments cannot be sent: %1.", reason))
    return CannotSend(gettext("%1, which the function uses, cannot be sent: %2.", name, reason))


def _unsent_part(space: Namespace, why: Mapping[str, str]) -> CannotSend:
    """Return the error for a call that cannot be sent, with the part of it that cannot: the function or an argument."""
    function, arguments, named = space[CALL]
    parts = [(str(key), value) for key, value in (*enumerate(arguments, 1), *named.items())]
    for name, value in parts:
        space[CALL] = value
        if failed := codec.measure(space, {CALL}, follow=False).failed:
            called = getattr(function, "__name__", type(function).__name__)
            return CannotSend(gettext("Argument %1 of %2 cannot be sent: %3.", name, called, failed[CALL]))
    return _unsent(why)


def _pulled(
    connection: Connection, space: Namespace, name: str, limit: int | None, listener: Listener | None = None
) -> Any:
    """Return a value of the worker; raises `CannotSend` and `TooLarge`."""
    chunks, failed, large = connection.pull([name], listener, limit=limit, host_copies=True)
    if large:
        raise TooLarge(gettext("The result of the function is larger than %1 bytes.", limit))
    found, unread = codec.loaded(space, chunks)
    if failed := {**failed, **unread}:
        raise CannotSend(gettext("The result of the function cannot be sent: %1.", failed[name]))
    return found.get(name)


def raised(connection: Connection, space: Namespace, reply: Mapping[str, Any], place: str) -> BaseException:
    """Return the error of a reply; ``place`` is an expression for it there."""
    if reply["ename"] == "KeyboardInterrupt":
        return KeyboardInterrupt()
    if place != ERROR:
        connection.run(f"{ERROR} = {place}")
    with suppress(CannotSend):
        error = _pulled(connection, space, ERROR, None)
        if isinstance(error, BaseException):
            return error
    return WorkerRefused(f"{reply['ename']}: {reply['evalue']}")
