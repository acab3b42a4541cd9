"""Pure: the GPUs that a worker's kernel is given, and how long a kernel without a call is kept for the next one.

CUDA looks for GPUs once in the life of a process, so a kernel serves calls that want exactly the GPUs that it was given
at its start. A program that used a GPU keeps it open. So a kernel that rests must end before one of its GPUs is given
back: nothing else would close it, and the GPU would drain for ever.

| the kernel | what happens | and then |
|---|---|---|
| – | a call | a new kernel is given the GPUs of now |
| rests | a call that wants the GPUs that it was given | it serves the call |
| rests | a call that wants some of its GPUs, or another part of one | it ends, and a new one serves the call |
| works | a call that wants one of its GPUs | the call waits for its turn |
| works | the call ends, and had asked for more GPUs than the server had | it ends, before they are given back |
| works | the call ends | it rests if `is_kept`, else it ends |
| rests | the GPUs change in any way | it is kept if `is_kept`, else it ends |
| rests | this program asks for fewer GPUs than it was given | it ends before the server hears of that |
| works | the GPUs change in any way | the call goes on; what is given back is closed when it ends |
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.view import GpuState, View

Gpus = frozenset[tuple[str, int]]
"""GPUs by uuid, each with the milli that can be used of it."""


def usable(view: View) -> Gpus:
    """Return the GPUs that can be used now."""
    return frozenset((item.gpu.uuid, item.milli) for item in view.gpus if item.state is GpuState.ATTACHED)


def is_kept(given: Gpus, view: View) -> bool:
    """Tell whether a kernel that rests is kept: all that it was given can be used, and nothing is being given back.

    It may have other GPUs open than its own, as libraries ask all that they can open about their memory.
    """
    return given <= usable(view) and all(item.state is not GpuState.DRAINING for item in view.gpus)


def milli_of(gpus: Gpus) -> int:
    """Return the amount."""
    return sum(milli for _, milli in gpus)


def share_one(some: Gpus, others: Gpus) -> bool:
    """Tell whether both have a part of the same GPU."""
    return not {uuid for uuid, _ in some}.isdisjoint(uuid for uuid, _ in others)


def sets(gpus: Gpus, milli: int, taken: Iterable[Gpus] = ()) -> list[Gpus]:
    """Divide what is not ``taken`` of some GPUs into sets of at least ``milli``, for one process each.

    The largest parts come first. What is left, and is less than ``milli``, is in no set.
    """
    busy = {uuid for one in taken for uuid, _ in one}
    found: list[Gpus] = []
    current: Gpus = frozenset()
    for uuid, part in sorted(gpus, key=lambda one: (-one[1], one[0])):
        if uuid in busy:
            continue
        current |= {(uuid, part)}
        if milli_of(current) >= milli:
            found.append(current)
            current = frozenset()
    return found
