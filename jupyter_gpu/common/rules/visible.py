"""The value of ``CUDA_VISIBLE_DEVICES`` where GPUs come and go; pure.

The variables of a running process cannot be changed. So it is set where a program starts (kernels, terminals, ``jupyter
gpu run``), kept up in Python kernels (`guard`), and set once more at the moment that counts, by the gate, before a
program's own call of ``cuInit``: in whatever language, and in all that a notebook starts. The gate's own form of these
rules is ``node_plugin/gate/driver/visible.c``; one test gives both the same cases.

AMD's libraries have ``ROCR_VISIBLE_DEVICES``. They read ``CUDA_VISIBLE_DEVICES``, too: it is set only where NVIDIA's
GPUs are. Each variable names the GPUs of its own vendor alone. Where there are both, a program with GPUs of AMD's has
``HIP_VISIBLE_DEVICES`` as well, as HIP would else look for NVIDIA's uuids among its own; a user's own value stays.

Where the system enforces nothing (soft mode), a value that the user chose is narrowed to what is attached; elsewhere it
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from jupyter_gpu.common.attached import AttachedGpu, Hint

NAMED_BY = "JUPYTER_GPU_VISIBLE_BY"
"""Variable that says whether our value has uuids or indices (``uuid``, ``index``)."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
OURS = "JUPYTER_GPU_CUDA_VISIBLE_DEVICES"
"""Variable with the value that we gave to CUDA_VISIBLE_DEVICES: if they differ, the user chose another."""
WANTED = "JUPYTER_GPU_CUDA_WANTED"
"""Variable with a user's own choice, if our value is a part of it."""
ROCR = "ROCR_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
"""Numbers among the GPUs that `ROCR` names. HIP reads it before ``CUDA_VISIBLE_DEVICES``."""
OUR_HIP = f"JUPYTER_GPU_{HIP}"
"""Variable with the value that we gave to it."""
VARIABLES = {
    "nvidia": (VISIBLE, OURS, WANTED),
    "amd": (ROCR, f"JUPYTER_GPU_{ROCR}", "JUPYTER_GPU_ROCR_WANTED"),
}
"""By vendor: the variable that its libraries read, and those with our value and with the user's own choice."""
ORDER, BUS_ORDER = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
"""Variable and value by which CUDA counts GPUs as nvidia-smi, the panel and ``gpu.devices`` do."""
CHOICES = (VISIBLE, ROCR, HIP)
"""The variables by which a process is told of the GPUs that it is to see."""
_UUID = "GPU-"
_OF_AMD = re.compile(r"GPU-[0-9a-f]{16}")
"""The form of AMD's uuids, by which ROCm takes them; NVIDIA's have five groups."""
_LONGEST_INDEX = 9


def chosen(environ: Mapping[str, str], vendor: str = "nvidia") -> str | None:
    """Return the value that someone else chose for a program with this environment; None if there is none."""
    visible, ours, wanted = VARIABLES[vendor]
    given = environ.get(visible)
    return environ.get(wanted) if given is not None and given == environ.get(ours) else given


def is_ours(environ: Mapping[str, str], hint: Hint) -> bool:
    """Tell whether no variable that libraries of the server's GPUs read has a value that the user chose."""
    names = (VARIABLES[vendor] for vendor in _known(hint))
    return all(environ.get(visible) == environ.get(ours) for visible, ours, _ in names)


def changes(environ: Mapping[str, str], hint: Hint) -> dict[str, str | None]:
    """Return the variables that tell a program with ``environ`` of its GPUs: to set, or with None to remove.

    Nothing where the GPUs are simulated, or where the system itself keeps the program from all others.
    """
    if hint.simulated:
        return {}
    found: dict[str, str | None] = {}
    for vendor in _known(hint):
        (visible, ours, wanted), own = VARIABLES[vendor], chosen(environ, vendor)
        if not hint.enforced or (own is None and visible in environ):
            value = value_of(vendor, hint, environ, own)
            found.update({visible: value, ours: value, wanted: own})
    if ROCR in found:
        found.update(hip_changes(environ, hint, found[ROCR]))
    return found


def hip_changes(environ: Mapping[str, str], hint: Hint, rocr: str | None) -> dict[str, str | None]:
    """Return HIP's variable for a program whose `ROCR` has this value, and ours; None: to remove it."""
    if _users_hip(environ):
        return {}
    value = _numbers(rocr) if rocr and VARIABLES.keys() <= hint.vendors else None
    return {} if value == environ.get(HIP) else {HIP: value, OUR_HIP: value}


def value_of(
    vendor: str, hint: Hint, environ: Mapping[str, str], own: str | None, order: Iterable[AttachedGpu] | None = None
) -> str:
    """Return the value of a vendor's variable: the GPUs of ``hint`` that are of it, of those that the user chose.

    ``order``: the same GPUs in the order in which they are to be named.
    """
    part = hint.of_vendor(vendor)
    gpus = part.gpus if order is None else [gpu for gpu in order if gpu.vendor == vendor]
    # The order of numbers, and whether we use them, is a matter of CUDA's variables.
    about = environ if vendor == "nvidia" else {}
    return ",".join(named(gpus, part, about) if own is None else narrowed(own, part, about))


def _known(hint: Hint) -> list[str]:
    return sorted(hint.vendors & VARIABLES.keys())


def named(gpus: Iterable[AttachedGpu], hint: Hint, environ: Mapping[str, str]) -> list[str]:
    """Return names of ``gpus`` of ``hint``, uuids or indices as the environment says. CUDA counts those it can open, by
    bus.
    """
    if environ.get(NAMED_BY) != "index" or environ.get(ORDER) != BUS_ORDER:
        return [gpu.uuid for gpu in gpus]
    places = {gpu.uuid: place if hint.enforced else gpu.index for place, gpu in enumerate(hint.gpus)}
    return [str(places[gpu.uuid]) for gpu in gpus]


def narrowed(wanted: str, hint: Hint, environ: Mapping[str, str]) -> list[str]:
    """Return the entries of ``wanted`` that are attached. As in CUDA, what names no GPU ends the list.

    A uuid of no attached GPU may be of another pod's or of none, which is not known here: it ends the list, too.
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
    """Return the same for a program that is about to start, with what it ``inherited`` of the server's environment.

    What was chosen for it alone stays: it may start long before it has a GPU. Enforced, nothing is needed at a start.
    """
    for_it_alone = any(
        environ.get(visible) != inherited.get(visible) for visible, _, _ in map(VARIABLES.__getitem__, _known(hint))
    )
    return {} if hint.enforced or for_it_alone else changes(environ, hint)


def of_process(environ: Mapping[str, str], hint: Hint, uuids: Iterable[str]) -> dict[str, str]:
    """Return the variables of a process that is to see some GPUs of ``hint`` alone, as if its user had chosen them.

    ``environ``: that of the program that starts it, whose user's own choice counts for it as well.
    """
    wanted, found = set(uuids), dict[str, str]()
    for vendor in _known(hint):
        part = hint.of_vendor(vendor)
        only = part.with_gpus(gpu for gpu in part.gpus if gpu.uuid in wanted)
        own = None if hint.simulated else chosen(environ, vendor)
        about = environ if vendor == "nvidia" else {}
        names = named(only.gpus, part, about) if own is None else narrowed(own, only, about)
        found[VARIABLES[vendor][0]] = ",".join(names)
    return found if _users_hip(environ) else _with_hip(found)


def of_uuids(uuids: Iterable[str], there: Iterable[str]) -> dict[str, str]:
    """Return the variables of a process of another node that is to see some of the GPUs ``there``, in their order.

    Only the uuids are known of them.
    """
    wanted, found = set(uuids), dict[str, list[str]]()
    for uuid in there:
        vendor = "amd" if _OF_AMD.fullmatch(uuid) else "nvidia"
        found.setdefault(VARIABLES[vendor][0], []).extend([uuid] if uuid in wanted else [])
    return _with_hip({name: ",".join(names) for name, names in found.items()} or {VISIBLE: ""})


def choose(environ: MutableMapping[str, str], values: Mapping[str, str]) -> None:
    """Give a process such variables: from now on they are no values of ours, which would follow what is attached."""
    if not _users_hip(environ):
        environ.pop(HIP, None)
    environ.pop(OUR_HIP, None)
    environ.update(values)
    for visible, ours, _ in VARIABLES.values():
        if visible in values:
            environ.pop(ours, None)


def _with_hip(found: dict[str, str]) -> dict[str, str]:
    """Add HIP's variable where it would else read CUDA's."""
    if VISIBLE in found and found.get(ROCR):
        found[HIP] = _numbers(found[ROCR])
    return found


def _numbers(rocr: str) -> str:
    """Return the numbers by which HIP counts the GPUs that `ROCR` names."""
    return ",".join(str(place) for place in range(len(rocr.split(","))))


def _users_hip(environ: Mapping[str, str]) -> bool:
    """Tell whether HIP's variable has a value that the user chose."""
    return environ.get(HIP) != environ.get(OUR_HIP)
