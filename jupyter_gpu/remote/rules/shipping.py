"""Pure: which values a cell's names are sent to a worker, which come back, and what the user is told of the others.

A value is compared with an earlier one by its fingerprint (`codec.Pickled`). Fingerprints are compared only within one
process: the same value may have another one elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from jupyter_gpu.model.message import Message, gettext
from jupyter_gpu.model.quantity import format_bytes
from jupyter_gpu.remote.rules.names import CellNames

OF_SHELL = frozenset(["In", "Out", "_dh", "_ih", "_oh", "exit", "get_ipython", "quit"])
"""Names that each IPython has of its own."""
LIMIT = 64 * 1024**2
"""Bytes that come back after a cell without being asked for."""


@dataclass(frozen=True)
class There:
    """A name that the worker has."""

    here: int | None = None
    """Fingerprint that the notebook's value had when the worker got its own; None if the notebook had none."""
    newer: bool = False
    """The worker's value was assigned or changed there, and the notebook does not have it."""


@dataclass(frozen=True)
class Sending:
    """Steps before a cell."""

    send: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    """Read, and in the worker as the cell needs them."""
    forget: tuple[str, ...] = ()
    """Deleted in the notebook since they were sent."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Reasons by name: the cell cannot run there."""
    lost: tuple[str, ...] = ()
    """Names to send whose changes in the worker end."""


@dataclass(frozen=True)
class Back:
    """Steps after a cell."""

    bring: tuple[str, ...] = ()
    stay: Mapping[str, Message] = field(default_factory=dict)
    """Reasons by name."""


@dataclass(frozen=True)
class Preparation:
    """How the worker finds out what a cell assigned and deleted, whatever these names meant there before."""

    hide: frozenset[str] = frozenset()
    """Taken away before the cell: what is there afterwards was assigned."""
    mark: frozenset[str] = frozenset()
    """Bound to a mark before the cell: what is away afterwards was deleted."""


def wanted(names: CellNames, inputs: Collection[str], present: Set[str], there: Set[str]) -> frozenset[str]:
    """Return the names that the cell needs: those it reads and ``-i``, as far as notebook or worker have them."""
    return ((names.reads | frozenset(inputs)) & (present | there)) - OF_SHELL


def preparation(names: CellNames, needed: Set[str]) -> Preparation:
    """Return what is done with names that the cell assigns and does not need: their values there may be old."""
    unneeded = names.assigns - needed - OF_SHELL
    return Preparation(unneeded - names.deletes, unneeded & names.deletes)


def groups(shared: Mapping[str, Collection[int] | None]) -> list[tuple[str, ...]]:
    """Return the names in groups that share no object, given the identities of the objects in each value.

    None: it has too many objects to compare, and may share some with every other value.
    """
    found: list[tuple[set[str], set[int]]] = []
    if None in shared.values():
        return [tuple(sorted(shared))]
    for name, objects in shared.items():
        names, ids = {name}, set(objects or ())
        apart = []
        for group in found:
            if ids.isdisjoint(group[1]):
                apart.append(group)
            else:
                names |= group[0]
                ids |= group[1]
        found = [*apart, (names, ids)]
    return sorted(tuple(sorted(names)) for names, _ in found)


def current(there: Mapping[str, There], newest: Collection[str]) -> dict[str, There]:
    """Return the names that a worker has; what it once had newer and is not among the ``newest`` is old by now."""
    return {name: There() if entry.newer and name not in newest else entry for name, entry in there.items()}


def moved(
    needed: Set[str], here: Mapping[str, int], elsewhere: Mapping[str, There], again: Set[str]
) -> dict[str, There]:
    """Return what a worker must get from another one, as it has it then.

    ``elsewhere`` has what others have, newer than the notebook's value of then: if the notebook still has that. What
    is sent ``again`` is the notebook's.
    """
    names = {name for name in needed & elsewhere.keys() - again if here.get(name) == elsewhere[name].here}
    return {name: There(elsewhere[name].here, newer=True) for name in names}


def sending(
    needed: Set[str],
    here: Mapping[str, int],
    failed: Mapping[str, str],
    there: Mapping[str, There],
    together: Iterable[Collection[str]] = (),
    again: Set[str] = frozenset(),
) -> Sending:
    """Return what is sent.

    ``here`` has the fingerprints of the notebook's values, ``failed`` why others have none. Of names ``together``,
    which share objects, all are sent if one is, so that they share them there; but what is newer there is kept.
    ``again`` (``-i``) is sent in any case.
    """
    send = {name for name in needed & here.keys() if name in again or _differs(here[name], there.get(name))}
    for group in together:
        if not send.isdisjoint(group):
            send |= {name for name in group if name in here and not there.get(name, There()).newer}
    kept = {name for name in needed - send if name in there and (name in here or there[name].newer)}
    refused = {name: failed[name] for name in sorted(needed & failed.keys() - kept)}
    gone = needed - send - kept - refused.keys()
    return Sending(
        tuple(sorted(send)),
        tuple(sorted(kept)),
        tuple(sorted(gone & there.keys())),
        refused,
        tuple(sorted(name for name in send if there.get(name, There()).newer)),
    )


def _differs(here: int, there: There | None) -> bool:
    return there is None or there.here != here


def back(
    sizes: Mapping[str, int],
    failed: Mapping[str, str],
    outputs: Collection[str] = (),
    limit: int = LIMIT,
    large: Collection[str] = (),
) -> Back:
    """Return which names come back: ``outputs`` (``-o``), and the smallest others up to ``limit`` bytes.

    ``failed`` says why others cannot be sent. The size of ``large`` ones is not known.
    """
    bring = list(outputs)
    stay = {name: gettext("it cannot be sent: %1", reason) for name, reason in failed.items()}
    stay |= {name: gettext("it is more than comes back by itself; -o %1 brings it", name) for name in large}
    left = limit
    for size, name in sorted((size, name) for name, size in sizes.items() if name not in outputs):
        if size <= left:
            bring.append(name)
            left -= size
        else:
            stay[name] = gettext("%1 are more than comes back by itself; -o %2 brings it", format_bytes(size), name)
    return Back(tuple(sorted(bring)), dict(sorted(stay.items())))


def said_before(
    names: CellNames, plan: Sending, unwatched: Collection[str] = (), outputs: Collection[str] = ()
) -> list[Message]:
    """Return what is said before the cell runs.

    Of the names that are ``unwatched``, such as large lists, it is not found out whether the cell changes them.
    """
    said = [
        gettext("%1 cannot be sent: %2. Make it in the cell that uses it, or do without it there.", name, reason)
        for name, reason in plan.refused.items()
    ]
    said += [gettext("It cannot be seen which variables '%1' uses: name them with -i.", call) for call in names.unseen]
    said += [gettext("The names of 'from %1 import *' stay in the worker.", module) for module in sorted(names.stars)]
    said += [
        gettext("%1 was changed in the worker and in the notebook: the worker gets the notebook's.", name)
        for name in plan.lost
    ]
    said += [
        gettext("%1 is read; changes of it there do not come back without -o %1.", name)
        for name in sorted(set(unwatched) & {*plan.send, *plan.keep} - set(outputs) - names.assigns)
    ]
    return said


def said_after(result: Back, changed: Collection[str] = ()) -> list[Message]:
    """Return what is said after the cell; ``changed`` are names that it read, changed in place, and did not bring."""
    said = [
        gettext("%1 stays in the worker, as gpu.remote.%1: %2.", name, reason) for name, reason in result.stay.items()
    ]
    said += [gettext("%1 was changed in the worker; -o %1 brings it.", name) for name in sorted(changed)]
    return said
