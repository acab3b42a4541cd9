"""Pure: the Dask workers that start, go on and retire when the GPUs change.

There is one worker for each GPU that is attached. What a worker has is moved to others before it ends, and of the last
one to a process without a GPU (`keeping`). While it has results that cannot be moved it is *held*: it has no new tasks,
and ends once they are gone or another worker takes them. Dask itself says what could be moved; here is only who is
asked.

Where a worker of the pod gives back some of its GPUs, it is not told which ones before they are closed. So all Dask
workers there retire, and those of GPUs that stay start again.

| GPU | worker | step |
|---|---|---|
| attached | – | start |
| attached | works | – |
| attached | held | it goes on |
| no longer attached | works or held | retire: it ends, or is held |
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from jupyter_gpu.model.view import View
from jupyter_gpu.remote.rules.keeping import Choice, places, usable


@dataclass(frozen=True)
class Steps:
    """The next steps, by the uuid of the GPU. What starts comes first: it takes what others have."""

    start: frozenset[str] = frozenset()
    resume: frozenset[str] = frozenset()
    retire: frozenset[str] = frozenset()


def attached(view: View) -> dict[str, Choice]:
    """Return the GPUs that have a worker, of all nodes, by uuid: each with its place and its part."""
    leaving = {worker.id for worker in view.workers if worker.leaving}
    known = [(place, gpu) for place in places(view) if place not in leaving for gpu in sorted(usable(view, place))]
    return {gpu[0]: Choice(place, frozenset([gpu])) for place, gpu in known}


def steps(attached: Set[str], working: Set[str], held: Set[str]) -> Steps:
    """Return what to do with attached GPUs, and with workers that work and that are held."""
    return Steps(
        start=frozenset(attached - working - held),
        resume=frozenset(attached & held),
        retire=frozenset((working | held) - attached),
    )
