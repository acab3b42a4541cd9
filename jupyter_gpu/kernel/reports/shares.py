"""The report of `gpu.usage()`: the use of this server's time shares. Times are in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from jupyter_gpu.kernel.reports.rules.usage import html, lines, seconds
from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes
from jupyter_gpu.model.share import GuestUse, ShareUse
from jupyter_gpu.model.usage import Usage
from jupyter_gpu.model.view import GpuState, Sample, View

_US = 1_000_000


@dataclass(frozen=True, slots=True, repr=False)
class ShareReport:
    """One time share. `guaranteed` to `throttled` are totals since it was attached."""

    uuid: str
    """Uuid of its GPU."""
    index: int | None
    """Index of its GPU; None if the GPU has just been given back."""
    allocated: float
    """Part of the GPU that you asked for: 0.25 is a quarter."""
    slice: float
    """Part of the GPU that it earns now: shares of one GPU lend each other what they do not use."""
    guaranteed: float
    """Ran on time that it earned."""
    borrowed: float
    """Ran on time that its bank had saved."""
    idle: float
    """Ran on time that no other share wanted."""
    waiting: float
    """Had work while another share ran."""
    throttled: float
    """The part of `waiting` in which it had used up its slice and its bank."""
    bank: float
    """Saved now: what it does not use of its slice can be used later, all at once."""
    bank_cap: float
    """The most that can be saved."""
    expires: float | None
    """Time from now until the next saved time is lost; None: nothing is saved."""
    sharing: int
    """Number of other shares of the GPU."""
    busy: float | None
    """Part of the time in which the GPU works, for all users; None if that is not known."""
    reason: str
    """Reason for the current `slice`, if it was changed."""
    memory: int | None
    """Bytes in use; None if that is not known."""
    memory_limit: int | None
    """Bytes that may be used; None: as many as the GPU has."""
    guest: GuestUse | None = None
    """The use that a guest makes of the GPU while its shares rest; None: there is none."""

    @classmethod
    def of(cls, use: ShareUse, index: int | None) -> ShareReport:
        """Convert to seconds and parts of a GPU; an overrun counts as earned time that was used early."""
        return cls(
            uuid=use.uuid,
            index=index,
            allocated=use.allocated / MILLI_PER_GPU,
            slice=use.effective / MILLI_PER_GPU,
            guaranteed=(use.guaranteed + use.overrun) / _US,
            borrowed=use.borrowed / _US,
            idle=use.idle / _US,
            waiting=use.waited / _US,
            throttled=use.throttled / _US,
            bank=use.balance / _US,
            bank_cap=use.cap / _US,
            expires=None if use.expires is None else use.expires / _US,
            sharing=use.sharing,
            busy=use.busy,
            reason=use.reason,
            memory=use.memory_used,
            memory_limit=use.memory_limit,
            guest=use.guest,
        )

    @property
    def name(self) -> str:
        """Name to use in a sentence."""
        return self.uuid if self.index is None else f"GPU {self.index}"

    def __repr__(self) -> str:
        lines = [f"{self.name}: {_slice(self)}, {_neighbours(self)}"]
        lines += [f"  {name:<9} {text}" for name, text in _facts(self)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, repr=False)
class GpuUsage:
    """The time shares of this server at one moment, by index; can be iterated, and is false if there is none."""

    shares: tuple[ShareReport, ...]
    unknown: int = 0
    """Number of your time shares without a report beside these: not enforced here, or just granted."""
    total: Usage | None = None
    """Use of all GPUs since the server started."""

    @property
    def sentence(self) -> str:
        """The use in one line of plain words."""
        if self.unknown:
            count = _count(len(self.shares) + self.unknown)
            return f"Your server has {count}; there are no figures yet for {self.unknown} of them."
        if self.shares:
            return f"Your server has {_count(len(self.shares))}."
        return (
            "Your server has no time share of a GPU: a whole one is shared with nobody, and nothing is accounted for."
        )

    def __len__(self) -> int:
        return len(self.shares)

    def __iter__(self) -> Iterator[ShareReport]:
        return iter(self.shares)

    def __getitem__(self, place: int) -> ShareReport:
        return self.shares[place]

    def __repr__(self) -> str:
        total = [*lines(self.total), ""] if self.total else []
        return "\n".join([*total, self.sentence, *map(repr, self.shares)])

    def _repr_html_(self) -> str:
        total = html(self.total) if self.total else ""
        return "".join([total, f"<p>{escape(self.sentence)}</p>", *map(_table, self.shares)])

    def to_json(self) -> dict[str, Any]:
        """JSON object: the total use, and the shares."""
        total = self.total.to_json() if self.total else {}
        return {**total, "shares": [_json(share) for share in self.shares], "unknown": self.unknown}


def usage(view: View, sample: Sample, total: Usage | None = None) -> GpuUsage:
    """Report the shares of ``sample``, with the names that ``view`` has for their GPUs."""
    index = {item.gpu.uuid: item.gpu.index for item in view.gpus}
    reports = [ShareReport.of(use, index.get(uuid)) for uuid, use in sample.shares.items()]
    ordered = sorted(reports, key=lambda one: (one.index is None, one.index or 0, one.uuid))
    mine = [item for item in view.gpus if item.milli < MILLI_PER_GPU and item.state is GpuState.ATTACHED]
    return GpuUsage(tuple(ordered), sum(item.gpu.uuid not in sample.shares for item in mine), total)


def in_short(one: ShareReport) -> str:
    """Return one line: what the share earns, what it has saved, and the number of other shares."""
    return f"{_slice(one)} · bank {seconds(one.bank)} of {seconds(one.bank_cap)} · {_neighbours(one)}"


def guest(use: GuestUse) -> str:
    """Return the use that a guest makes of the GPU: ``40 % of the time and 12 GiB``."""
    return f"{100 * use.busy:.0f} % of the time and {format_bytes(use.memory)}"


def _count(shares: int) -> str:
    return "one time share" if shares == 1 else f"{shares} time shares"


def _json(one: ShareReport) -> dict[str, Any]:
    body = asdict(one)
    guest = body.pop("guest")
    return {**body, "guest": guest._asdict()} if guest else body


def _slice(one: ShareReport) -> str:
    now = f"{one.slice:.3g} of it"
    return now if one.slice == one.allocated else f"{now} now ({one.allocated:.3g} allocated)"


def _neighbours(one: ShareReport) -> str:
    others = "nobody else shares it"
    if one.sharing:
        others = "shared with 1 other" if one.sharing == 1 else f"shared with {one.sharing} others"
    return others if one.busy is None else f"{others}, {one.busy:.0%} busy"


def _facts(one: ShareReport) -> list[tuple[str, str]]:
    ran = one.guaranteed + one.borrowed + one.idle
    parts = (
        f"{seconds(one.guaranteed)} of its slice, {seconds(one.borrowed)} from its bank, {seconds(one.idle)} idle time"
    )
    bank = f"{seconds(one.bank)} of at most {seconds(one.bank_cap)}"
    rows = [
        ("ran", f"{seconds(ran)}: {parts}"),
        ("waited", f"{seconds(one.waiting)}, of it {seconds(one.throttled)} with nothing left to spend"),
        ("bank", bank if one.expires is None else f"{bank}; the next deposit expires in {seconds(one.expires)}"),
    ]
    if one.memory is not None:
        limit = "" if one.memory_limit is None else f" of {format_bytes(one.memory_limit)}"
        rows.append(("memory", f"{format_bytes(one.memory)}{limit}"))
    if one.guest:
        rows.append(("guest", guest(one.guest)))
    return [*rows, ("reason", one.reason)] if one.reason else rows


def _table(one: ShareReport) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name.capitalize())}</th><td style="text-align: left">{escape(text)}</td></tr>'
        for name, text in _facts(one)
    )
    head = f"<caption>{escape(f'{one.name}: {_slice(one)}, {_neighbours(one)}')}</caption>"
    return f"<table>{head}<tbody>{rows}</tbody></table>"
