"""The kinds of processes that a kernel starts, known by their arguments, and how to end each. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A process that this one started, or a process that one of those started."""

    pid: int
    command: str
    """Name of the program; ``pt_data_worker`` where PyTorch says so."""
    arguments: tuple[str, ...]
    forked: bool = False
    """Whether it still runs the program of this process: started with *fork*, as a DataLoader's workers are."""


@dataclass(frozen=True, slots=True)
class Worker:
    """The kind of one process, and the way to end it."""

    pid: int
    kind: str
    advice: str = ""
    """Advice on how to end it; empty for the process itself."""
    waits: bool = True
    """Whether it waits for this process and so never ends by itself while this one waits."""


SELF = "this process itself"

_DATALOADER = ("a DataLoader worker", "delete the loader and its iterators (del loader, it)")
_LOKY = (
    "a joblib (loky) worker",
    "from joblib.externals.loky import get_reusable_executor; get_reusable_executor().shutdown(kill_workers=True)",
)
_DASK = ("a Dask worker", "client.close() and cluster.close()")
_POOL = ("a multiprocessing worker", "pool.terminate(), or executor.shutdown(), of what started it")
_EITHER = ("a Dask or multiprocessing worker", f"{_DASK[1]} of Dask, or {_POOL[1]}")
_PROGRAM = ("a program that you started here", "process.terminate() of the one you started")


def worker(process: ChildProcess, loaded: Collection[str]) -> Worker:
    """Classify ``process``. ``loaded``: names of the modules that the process which started it has loaded."""
    words = " ".join(process.arguments)
    if "loky" in words:
        return Worker(process.pid, *_LOKY)
    if "dask" in _names(process.arguments).lower() or "distributed.nanny" in words or "distributed.cli" in words:
        return Worker(process.pid, *_DASK)
    if process.command.startswith("pt_data"):
        return Worker(process.pid, *_DATALOADER)
    if process.forked:
        return Worker(process.pid, *(_DATALOADER if "torch.utils.data.dataloader" in loaded else _POOL))
    if "multiprocessing" in words or "--multiprocessing-fork" in process.arguments:
        return Worker(process.pid, *(_EITHER if "distributed" in loaded else _POOL))
    return Worker(process.pid, *_PROGRAM, waits=False)


def _names(arguments: Sequence[str]) -> str:
    """Return the arguments without folders and code: an environment may be named after a library that is not run."""
    kept = [argument for before, argument in pairwise(("", *arguments)) if before != "-c"]
    return " ".join(one.rpartition("/")[2] if one.startswith(("/", ".")) else one for one in kept)


def describe(workers: Iterable[Worker]) -> str:
    """Describe the workers in one sentence, with how to end them."""
    found = sorted(set(workers), key=lambda one: one.pid)
    names = _join([f"{one.kind} (process {one.pid})" if one.advice else one.kind for one in found])
    advices = list(dict.fromkeys(one.advice for one in found if one.advice))
    verb = "has" if len(found) == 1 else "have"
    return f"Still open: {names} {verb} it. To end {'it' if len(found) == 1 else 'them'}: {'; '.join(advices)}."


def _join(names: Sequence[str]) -> str:
    few = list(names) if len(names) <= 4 else [*names[:3], f"{len(names) - 3} others"]
    return few[0] if len(few) == 1 else f"{', '.join(few[:-1])} and {few[-1]}"
