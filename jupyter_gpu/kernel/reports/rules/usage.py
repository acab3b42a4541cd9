"""A server's use in words: for how long it held each GPU, and how busy the GPU was, as far as is known. Pure."""

from __future__ import annotations

from html import escape

from jupyter_gpu.model.usage import GpuUse, Usage


def lines(usage: Usage) -> list[str]:
    """Return the use as text."""
    return [sentence(usage), *(f"  {name(use):<7} {' · '.join(facts(use))}" for use in usage.gpus)]


def html(usage: Usage) -> str:
    """Return the use as an HTML table."""
    cells = [(escape(name(use)), escape(" · ".join(facts(use)))) for use in usage.gpus]
    rows = "".join(
        f'<tr><th scope="row">{gpu}</th><td style="text-align: left">{text}</td></tr>' for gpu, text in cells
    )
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    return f"<p><strong>{escape(sentence(usage))}</strong></p>{table}"


def sentence(usage: Usage) -> str:
    """Return the use in one line."""
    running = f"since it started {seconds(usage.seconds)} ago"
    if not usage.gpus:
        return f"This server has held no GPU {running}."
    return f"This server held {seconds(sum(use.gpu_time for use in usage.gpus))} of GPU time {running}."


def name(use: GpuUse) -> str:
    """Return the name of a GPU, as `gpu.devices` has it."""
    return f"GPU {use.index} on {use.node}" if use.node else f"GPU {use.index}"


def facts(use: GpuUse) -> list[str]:
    """Return how long one GPU was held, and how busy it was, as far as is known."""
    found = []
    if use.whole:
        found.append(f"{seconds(use.whole)} whole")
        known = f"busy {use.busy / use.watched:.0%} of the {seconds(use.watched)} watched" if use.watched else ""
        found.append(known or "not watched, so its load is not known")
    if use.shared:
        found.append(f"{seconds(use.shared)} shared, worth {seconds(use.worth)}")
        if not use.node:
            found.append(f"ran {seconds(use.ran)}, waited {seconds(use.waited)}")
    return found or ["just taken"]


def seconds(amount: float) -> str:
    """Write seconds as short as is useful: ``0.0031`` → ``"3.1 ms"``, ``0`` → ``"0 s"``, ``200`` → ``"3 min 20 s"``."""
    if 0 < amount < 0.9995:
        return f"{amount * 1000:.3g} ms"
    if amount < 59.95:
        return f"{amount:.3g} s"
    minutes, rest = divmod(round(amount), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
