"""The text of ``jupyter gpu workers``: a line for each worker; below it, what Kubernetes says or what broke. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_gpu.model.quantity import count_gpus
from jupyter_gpu.model.view import View


def lines(view: View) -> Iterator[str]:
    """Yield the lines; without workers, one that says what other nodes could give."""
    if not view.workers:
        yield _none(view.elsewhere)
        return
    from jupyter_gpu.model.worker_words import amount, distance, kinds, state, traffic

    table = [
        (worker.id, worker.node, state(worker), amount(worker), distance(worker), kinds(worker), traffic(worker))
        for worker in view.workers
    ]
    columns = [column for column in zip(*table, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    for worker, row in zip(view.workers, zip(*columns, strict=True), strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for text in filter(None, (worker.message, *worker.health)):
            yield f"{' ' * (widths[0] + 2)}{text}"


def _none(elsewhere: int | None) -> str:
    if elsewhere is None:
        return "No worker: this server has GPUs of its own node alone."
    if elsewhere:
        return f"No worker: other nodes could give {count_gpus(elsewhere)}, and give none now."
    return "No worker: other nodes give this server no GPU."
