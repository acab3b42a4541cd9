"""What ``CUDA_VISIBLE_DEVICES`` is to be where GPUs come and go; pure.

Nobody can change a variable of a process that runs. So it is set where a program starts (kernels, terminals, ``jupyter
gpu run``), kept up in Python kernels (:mod:`.cuda`), and set once more at the moment that counts, by the gate, before a
program's own call of ``cuInit``: in whatever language, and in all that a notebook starts. The gate's own form of these
rules is ``node_plugin/gate/visible.c``; one test gives both the same cases.

Where the system enforces nothing (soft mode), a value that the user chose is narrowed to what is attached; elsewhere it
stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from .attached import AttachedGpu, Hint

NAMED_BY = "JUPYTER_GPU_VISIBLE_BY"
"""Whether ours has uuids or indices (``uuid``, ``index``)."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
OURS = "JUPYTER_GPU_CUDA_VISIBLE_DEVICES"
"""Holds the value that we gave to CUDA_VISIBLE_DEVICES: if they differ, somebody chose another."""
WANTED = "JUPYTER_GPU_CUDA_WANTED"
"""What somebody chose, where ours is that, narrowed."""
ORDER, BUS_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""Variable and value by which CUDA counts GPUs as nvidia-smi, the panel and ``gpu.devices`` do."""
_UUID = "GPU-"
_LONGEST_INDEX = 9


def chosen(environ: Mapping[str, str]) -> str | None:
    """What somebody else than us chose for a program with this environment; None: nothing."""
    given = environ.get(VISIBLE)
    return environ.get(WANTED) if given is not None and given == environ.get(OURS) else given


def changes(environ: Mapping[str, str], hint: Hint) -> dict[str, str | None]:
    """How a program with the environment ``environ`` is told of its GPUs: variables to set, None: to remove.

    Nothing where the GPUs are simulated, or where the system itself keeps the program from all others.
    """
    given, own = environ.get(VISIBLE), chosen(environ)
    if hint.simulated or (hint.enforced and (own is not None or given is None)):
        return {}
    names = named(hint.gpus, hint, environ) if own is None else narrowed(own, hint, environ)
    value = ",".join(names)
    return {VISIBLE: value, OURS: value, WANTED: own}


def named(gpus: Iterable[AttachedGpu], hint: Hint, environ: Mapping[str, str]) -> list[str]:
    """``gpus`` of ``hint``, by uuid or index as the environment asks for. CUDA counts GPUs that it can open, by bus."""
    if environ.get(NAMED_BY) != "index" or environ.get(ORDER) != BUS_ORDER:
        return [gpu.uuid for gpu in gpus]
    places = {gpu.uuid: place if hint.enforced else gpu.index for place, gpu in enumerate(hint.gpus)}
    return [str(places[gpu.uuid]) for gpu in gpus]


def narrowed(wanted: str, hint: Hint, environ: Mapping[str, str]) -> list[str]:
    """The entries of ``wanted`` that are attached. As in CUDA, what names no GPU ends the list.

    Whether the uuid of no attached GPU is another's or nobody's is not known here: it ends the list, too.
    """
    found = []
    for entry in wanted.split(","):
        word = entry.strip(" \t")
        if word.isascii() and word.isdigit() and len(word) <= _LONGEST_INDEX:
            same = [gpu for gpu in hint.gpus if gpu.index == int(word)]
            # Elsewhere CUDA counts in an order of its own, and the number could mean a GPU that is not attached.
            found += [word if environ.get(ORDER) == BUS_ORDER else gpu.uuid for gpu in same]
            continue
        same = [gpu for gpu in hint.gpus if gpu.uuid.startswith(word) and word.startswith(_UUID) and word != _UUID]
        if len(same) != 1:
            break
        found.append(same[0].uuid)
    return found


def start(environ: Mapping[str, str], inherited: Mapping[str, str], hint: Hint) -> dict[str, str | None]:
    """The same for a program that is only about to start, with what it ``inherited`` of the server in its environment.

    What was chosen for it alone stays: it may start long before it has a GPU. Enforced, nothing is needed at a start.
    """
    for_it_alone = environ.get(VISIBLE) != inherited.get(VISIBLE)
    return {} if hint.enforced or for_it_alone else changes(environ, hint)
