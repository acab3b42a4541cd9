"""One line that says in plain words what is so now: the same words in panel, code and terminal.

``tests/golden/sentences.json`` holds views with their sentences; the TypeScript twin of this module
(``labextension/src/sentence.ts``) is tested against the same file.
"""

from __future__ import annotations

from .annotations import Reason
from .quantity import format_gpus
from .status import Phase
from .view import GpuState, PodGpu, View

_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def sentence(view: View) -> str:
    """The line for ``view``."""
    now = view.status
    if view.total == 0:
        return "There is no GPU here."
    if now.phase is Phase.DEGRADED:
        return f"{_names(view, GpuState.UNHEALTHY)} stopped working: give it back and ask again to get another one"
    if now.phase is Phase.REFUSED:
        return _refused(view)
    if now.phase is Phase.PENDING:
        return f"asking for {_gpus(now.requested)}…"
    if now.phase is Phase.ATTACHING:
        return f"attaching {_gpus(now.allocated)}…"
    if now.phase is Phase.WAITING:
        return _waiting(view)
    if now.phase is Phase.RELEASING:
        return _releasing(view)
    return f"{format_gpus(now.attached)} of {_gpus(view.limit)} attached"


def _refused(view: View) -> str:
    now = view.status
    kept = f"you keep {_gpus(now.attached)}" if now.attached else "nothing was changed"
    if now.reason is Reason.LIMIT_EXCEEDED:
        return f"{_gpus(now.requested)} is over your limit of {format_gpus(view.limit)}: {kept}"
    return f"{_gpus(now.requested)} can never fit here, there are {format_gpus(view.total)}: {kept}"


def _waiting(view: View) -> str:
    now = view.status
    missing = now.requested - now.allocated
    more = f"{_word(missing)} more" if now.allocated else "granted"
    when = "when it is free" if missing <= 1000 else "when they are free"
    place = view.allocated.position if view.allocated else None
    line = f", you are {_ordinal(place)} in line" if place else ""
    return f"{format_gpus(now.allocated)} of {format_gpus(now.requested)}: {more} {when}{line}"


def _releasing(view: View) -> str:
    leaving = [gpu for gpu in view.gpus if gpu.state is GpuState.DRAINING]
    names = sorted({user.name for gpu in leaving for user in gpu.users})
    if not names:
        return f"giving back {_names(view, GpuState.DRAINING)}…"
    verb = "has" if len(names) == 1 else "have"
    it = "it" if len(leaving) == 1 else "them"
    return f"giving back {_names(view, GpuState.DRAINING)}: {_join(names)} still {verb} {it} open"


def _names(view: View, state: GpuState) -> str:
    chosen: list[PodGpu] = [gpu for gpu in view.gpus if gpu.state is state]
    if len(chosen) == 1:
        return f"GPU {chosen[0].gpu.index}"
    return f"GPUs {_join([str(item.gpu.index) for item in chosen])}" if chosen else "a GPU"


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _gpus(milli: int) -> str:
    return f"{format_gpus(milli)} GPU" + ("" if 0 < milli <= 1000 else "s")


def _word(milli: int) -> str:
    whole, rest = divmod(milli, 1000)
    return _NUMBERS[whole] if not rest and whole < len(_NUMBERS) else format_gpus(milli)


def _ordinal(n: int) -> str:
    if n == 1:
        return "next"
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
