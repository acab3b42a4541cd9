"""Errors that the NVIDIA driver reports by itself (Xid), and when a GPU that had one is fit again. Pure.

Numbers and meanings: NVIDIA, "XID Errors" (https://docs.nvidia.com/deploy/xid-errors/). Those that a program causes
leave the GPU in order, and never make it unhealthy. After any other one no pod is given the GPU until it is known to
be in order:

- A driver that tells what a GPU needs (its *recovery action*) is believed: once it asks for nothing in
  `CALM` inventories in a row, in which no other error came, the GPU is fit again.
- Of a driver that does not tell, the GPU is fit again after as many such inventories once it was *away*: gone or
  lost, as it is while it is reset. Silence alone is no proof: a hung GPU is silent too.

What the driver asks for counts also where no error was seen: it happened before this process began.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

CALM = 3
"""Inventories in a row without another error."""

HARMLESS: Mapping[int, str] = {
    13: "graphics engine exception of a program",
    31: "memory page fault of a program",
    43: "a program's channel was reset",
    45: "a program was ended",
    63: "a row of memory was remapped",
    68: "video processor exception of a program",
    92: "many corrected memory errors",
    94: "contained memory error: only the program is lost",
    109: "context switch of a program timed out",
}
"""Errors of a program, or ones that the driver has dealt with; the GPU works on."""
FATAL: Mapping[int, str] = {
    48: "memory error that could not be corrected",
    62: "its internal controller halted",
    64: "a row of memory could not be remapped",
    74: "NVLink error",
    79: "it has fallen off the bus",
    95: "uncontained memory error",
    119: "its system processor does not answer",
    120: "error of its system processor",
}
ACTIONS: Mapping[int, str] = {
    1: "Reset the GPU.",
    2: "Restart the machine.",
    3: "End the programs that use this GPU together with others.",
    4: "End the programs that use the GPU, then reset it.",
    5: "Recover its NVLink domain.",
    6: "Reset its bus.",
    7: "Restart the machine.",
}
"""Recovery actions that a driver asks for; 0 is none (NVML's ``nvmlDeviceGetFieldValues``, recovery action)."""


def problem_of(xid: int) -> str:
    """Say in plain words why the GPU must not be used after this error of the driver; empty if it may.

    An error that is not listed counts as fatal: to give out a broken GPU is worse than to miss one.
    """
    if xid in HARMLESS:
        return ""
    what = FATAL.get(xid, "an error that is not known to be harmless")
    return f"The driver reported Xid {xid}: {what}."


@dataclass(slots=True)
class _GpuError:
    """The error state of one GPU that had an error."""

    problem: str
    away: bool = False
    calm: int = 0


@dataclass(slots=True)
class GpuErrors:
    """The GPUs that must not be used, by uuid, and what they need."""

    _broken: dict[str, _GpuError] = field(default_factory=dict)
    _actions: dict[str, int] = field(default_factory=dict)

    def record_error(self, uuid: str, xid: int) -> None:
        """Record an error that the driver reported. The first problem is shown until the GPU is in order again."""
        if problem := problem_of(xid):
            known = self._broken.setdefault(uuid, _GpuError(problem))
            known.away, known.calm = False, 0

    def update(self, actions: Mapping[str, int | None], unasked: Collection[str] = ()) -> None:
        """Record an inventory: the recovery action of each GPU that answered, None where the driver reports none.

        Errors that came before it must have been recorded by `broke` already. ``unasked`` were skipped.
        """
        self._actions = {uuid: action for uuid, action in actions.items() if action}
        for uuid, error in tuple(self._broken.items()):
            if uuid not in actions:
                error.away, error.calm = error.away or uuid not in unasked, 0
            elif actions[uuid] == 0 or (actions[uuid] is None and error.away):
                error.calm += 1
                if error.calm > CALM:  # the inventory that found the error is the first of them
                    del self._broken[uuid]
            else:
                error.calm = 0

    def problem(self, uuid: str) -> str:
        """Say why this GPU must not be used, and what to do; empty if it may."""
        known, action = self._broken.get(uuid), self._actions.get(uuid)
        if action:
            advice = f"The driver says what it needs: {ACTIONS.get(action, f'action {action}.')}"
            return f"{known.problem} {advice}" if known else advice
        return f"{known.problem} Reset the GPU, for which every program must let go of it." if known else ""
