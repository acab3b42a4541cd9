"""One line about the current state in plain words, the same in panel, code and terminal.

``tests/golden/sentences.json`` holds views with their sentences; the TypeScript twin of this module
(``labextension/src/words/sentence.ts``) is tested against the same file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

from .annotations import Reason
from .gpu import total
from .quantity import EXACT_POSITIONS, MILLI_PER_GPU, count_gpus, format_gpus
from .status import Phase
from .view import GpuState, PodGpu, View

if TYPE_CHECKING:  # loaded with the first limit or worker, not when a kernel starts
    from .limits.pod_limit import PodLimit
    from .pod_worker import PodWorker

_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def sentence(view: View, now: float | None = None, zone: tzinfo | None = None) -> str:
    """Describe ``view`` in one line, always with GPUs that are given back, parked, lent, or have other users.

    ``now``: seconds since 1970, to tell a time of today from others; ``None``: by the clock. ``zone`` is the time zone;
    ``None``: that of this machine.
    """
    leaving = _in_state(view, GpuState.DRAINING)
    away = [_on(worker, worker.leaving) for worker in view.workers if worker.leaving]
    attached = _in_state(view, GpuState.ATTACHED)
    guest, lent = [gpu for gpu in attached if not gpu.milli], [gpu for gpu in attached if gpu.keeps]
    releasing = view.status.phase is Phase.RELEASING
    parked = _parked(view, now, zone)
    back = [_giving_back(leaving)] if leaving or (releasing and not away) else []
    if away:
        back.append(f"giving back {_join(away)}…")
    if guest:
        back.append(f"{_names(guest)} lent while others rest")
    if lent:
        back.append(f"{_names(lent)} lent while {'they rest' if len(lent) > 1 else 'it rests'}")
    if releasing:
        return "; ".join([*parked, *back])
    shared = [gpu for gpu in view.gpus if gpu.strangers and gpu.state is not GpuState.DRAINING]
    first = [] if parked and view.status.phase is Phase.PARKED and not view.status.attached else [_now(view)]
    return "; ".join([*first, *parked, *back, *([_also_used(shared)] if shared else [])])


def _parked(view: View, now: float | None, zone: tzinfo | None) -> list[str]:
    """Say what is in memory, and what of it waits for a GPU."""
    parked, returning = _in_state(view, GpuState.PARKED), _in_state(view, GpuState.RETURNING)
    if not parked and not returning:
        return []  # as on most servers
    from .parking_words import in_memory, way_back

    waits = returning and view.status.phase is Phase.WAITING
    name = f"{_names(parked)} parked" if view.status.attached or view.status.phase is not Phase.PARKED else "parked"
    said = [f"then {way_back(returning)}"] if waits else []
    return [*said, f"{name}: {in_memory(parked, now, zone)}"] if parked else said


def _now(view: View) -> str:
    now = view.status
    if now.phase is Phase.DEGRADED:
        return _broken(_in_state(view, GpuState.UNHEALTHY), view.workers)
    if view.total == 0:
        return "no GPU here"
    if now.phase is Phase.REFUSED:
        return _refused(view)
    if now.phase is Phase.PENDING:
        return f"asking for {count_gpus(now.requested)}…" if now.requested else "giving back all GPUs…"
    if now.phase is Phase.ATTACHING and now.reason is Reason.DRAINING:
        return "waiting for memory: another share still uses it"
    if now.phase is Phase.ATTACHING:
        return _attaching(view)
    limit = view.user_limit
    if limit and limit.milli is not None and now.allocated > limit.milli:
        return _over(now.attached, now.allocated - limit.milli, limit)
    if now.phase is Phase.WAITING:
        return _waiting(view)
    if now.attached > view.limit:
        return f"{count_gpus(now.attached)} attached, over your server's limit of {format_gpus(view.limit)}"
    if view.limit == 0:
        return f"no GPU attached: {_nothing(limit)}"
    return f"{format_gpus(now.attached)} of {count_gpus(view.limit)} attached{_where(view)}"


def _attaching(view: View) -> str:
    own = _in_state(view, GpuState.ATTACHING)
    attached = [*([_names(own)] if own else []), *(_on(w, w.missing) for w in view.workers if w.attaching)]
    starting = [w.node for w in view.workers if w.missing and not w.hindered and not w.attaching]
    returning = _in_state(view, GpuState.RETURNING)
    parts = [f"attaching {_join(attached or [_names(own)])}"] if attached or not (starting or returning) else []
    if returning:
        from .parking_words import way_back

        parts.append(f"{_names(returning)}: {way_back(returning)}")
    if starting:
        parts.append(f"starting {'a worker' if len(starting) == 1 else 'workers'} on {_join(starting)}")
    return f"{'; '.join(parts)}…"


def _where(view: View) -> str:
    """Say how much is on which node; nothing where all is on the own one."""
    away = [(w.usable, f"on {w.node}") for w in view.workers if w.usable]
    if not away:
        return ""
    here = view.status.attached - sum(milli for milli, _ in away)
    places = [(here, "here"), *away] if here else away
    return f": {', '.join(f'{format_gpus(milli)} {place}' for milli, place in places)}"


def _on(worker: PodWorker, milli: int) -> str:
    return f"{count_gpus(milli)} on {worker.node}"


def _broken(gpus: Sequence[PodGpu], workers: Sequence[PodWorker]) -> str:
    away = [worker for worker in workers if worker.unhealthy]
    count = len(gpus) + sum(len(worker.unhealthy) for worker in away)
    names = [_names(gpus)] if gpus or not away else []
    which = _join([*names, *(_on(worker, total(worker.unhealthy)) for worker in away)])
    advice = "give them back and ask again to get others" if count > 1 else "give it back and ask again for another"
    return f"{which} stopped working: {advice}"


def _refused(view: View) -> str:
    now = view.status
    over = now.reason is Reason.LIMIT_EXCEEDED
    server = "it" if over else "your server"
    kept = f"{server} keeps {format_gpus(now.attached)}" if now.attached else "nothing was changed"
    if over:
        return f"{format_gpus(now.requested)} is over your server's limit of {count_gpus(view.limit)}: {kept}"
    if now.requested > view.total:
        return f"{format_gpus(now.requested)} is more than the {count_gpus(view.total)} here: {kept}"
    return f"the GPUs here can never fit this request: {kept}"


def _waiting(view: View) -> str:
    now, limit, parked = view.status, view.user_limit, _milli(view, GpuState.PARKED)
    allowed = now.requested if limit is None or limit.milli is None else min(now.requested, limit.milli)
    if now.limited:
        allowed = now.allocated + parked
    parts = []
    hindered = [worker for worker in view.workers if worker.missing and worker.hindered]
    lost = sum(worker.missing for worker in hindered)
    have = now.allocated - lost
    if lost:
        who = f"the {'worker' if len(hindered) == 1 else 'workers'} on {_join([worker.node for worker in hindered])}"
        parts.append(f"{_more(lost, have)} when {who} can start")
    if free := max(0, allowed - now.allocated - parked):
        parts.append(f"{_more(free, now.allocated + parked)} {_when_free(free)}{_line(view)}")
    if limit and allowed < now.requested:
        parts.append(f"{_more(now.requested - allowed, allowed)} when {_when_raised(limit, allowed)}")
    if not parts and (needed := _milli(view, GpuState.RETURNING)):
        parts.append(f"{_more(needed, now.allocated)} when you ask for that")
    if not parts:
        parts.append(f"more memory when it is free{_line(view)}")
    return f"{format_gpus(have)} of {format_gpus(now.requested)}: {'; '.join(parts)}"


def _more(milli: int, before: int) -> str:
    return f"{_word(milli)} more" if before else _word(milli)


def _when_free(milli: int) -> str:
    return "when it is free" if milli <= MILLI_PER_GPU else "when they are free"


def _line(view: View) -> str:
    position = view.allocated.position if view.allocated else None
    about = "about " if position and position > EXACT_POSITIONS else ""
    return f", your server is {about}{_ordinal(position)} in line" if position else ""


def _when_raised(limit: PodLimit, allowed: int) -> str:
    if limit.max is None or limit.milli is None or allowed < limit.milli:
        return "your limits allow it"  # those of a model or of memory, or what other servers wait for
    others = ", or when your other servers give some back" if limit.milli < limit.max else ""
    return f"your limit of {count_gpus(limit.max)} is raised{others}"


def _over(attached: int, over: int, limit: PodLimit) -> str:
    most = limit.max or 0
    others = max(0, most - (limit.milli or 0))
    where = f", of which your other servers have {format_gpus(others)}" if others else ""
    text = f"{count_gpus(attached)} attached, over your limit of {format_gpus(most)}{where}"
    if limit.give_back_at is None:
        return text
    return f"{text}: {'up to ' if others else ''}{count_gpus(over)} will be taken back soon"


def _nothing(limit: PodLimit | None) -> str:
    if limit is None or limit.max is None or limit.milli:
        return "your server's limit is 0"
    if limit.max == 0:
        return "your limit is 0"
    return f"your other servers have all of your limit of {count_gpus(limit.max)}"


def _giving_back(leaving: Sequence[PodGpu]) -> str:
    held = [gpu for gpu in leaving if gpu.users]
    if not held:
        return f"giving back {_names(leaving)}…"
    names = sorted({user.name for gpu in held for user in gpu.users})
    verb = "has" if len(names) == 1 else "have"
    which = "it" if len(leaving) == 1 else "them" if len(held) == len(leaving) else _names(held)
    return f"giving back {_names(leaving)}: {_join(_few(names))} still {verb} {which} open"


def _also_used(shared: Sequence[PodGpu]) -> str:
    names = list(dict.fromkeys(stranger.name for gpu in shared for stranger in gpu.strangers))
    verb, which = ("is", "it") if len(shared) == 1 else ("are", "them")
    return f"{_names(shared)} {verb} also used by {_join(_few(names))}, which did not get {which} from jupyter-gpu"


def _milli(view: View, state: GpuState) -> int:
    return sum(gpu.milli for gpu in _in_state(view, state))


def _in_state(view: View, state: GpuState) -> list[PodGpu]:
    return [gpu for gpu in view.gpus if gpu.state is state]


def _names(gpus: Sequence[PodGpu]) -> str:
    if not gpus:
        return "a GPU"
    return f"GPU{'s' if len(gpus) > 1 else ''} {_join([str(item.gpu.index) for item in gpus])}"


def _few(words: list[str]) -> list[str]:
    return words if len(words) <= 3 else [*words[:2], f"{len(words) - 2} others"]


def _join(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _word(milli: int) -> str:
    whole, rest = divmod(milli, MILLI_PER_GPU)
    return _NUMBERS[whole] if not rest and whole < len(_NUMBERS) else format_gpus(milli)


def _ordinal(n: int) -> str:
    if n == 1:
        return "first"
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
