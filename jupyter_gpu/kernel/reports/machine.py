"""The report of `gpu.machine()` and `jupyter gpu machine`: all GPUs, who has them, and who waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_gpu.kernel.client import Call, Client
from jupyter_gpu.model.machine import GpuPart, Machine, MachineGpu, Server, Shown
from jupyter_gpu.model.quantity import EXACT_POSITIONS, MILLI_PER_GPU, count_gpus, format_bytes, format_gpus


@dataclass(frozen=True, slots=True, repr=False)
class MachineReport:
    """All GPUs of the machine; shown as text."""

    machine: Machine

    def __repr__(self) -> str:
        return "\n".join(lines(self.machine))


def machine_report(client: Client) -> MachineReport:
    """Return the report of the server; raises as `Client.send`."""
    return MachineReport(client.exchange(Call("GET", "machine")).ask(Machine.from_json))


def lines(machine: Machine) -> Iterator[str]:
    """Yield a line for each GPU, one for the sums, one for each server that waits."""
    rows = [_row(gpu, machine) for gpu in machine.gpus]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    totals = machine.totals
    where = "this node" if machine.shown is Shown.TOTALS else "this machine"
    line = {0: "nobody waits", 1: "1 server waits"}.get(totals.waiting, f"{totals.waiting} servers wait")
    all_of_them = count_gpus(MILLI_PER_GPU * totals.gpus)
    verb = "is" if totals.gpus == 1 else "are"
    yield f"{format_gpus(totals.free)} of {all_of_them} of {where} {verb} free; {line}."
    for server in sorted((one for one in machine.servers if one.owed), key=lambda one: one.position or 10**6):
        place = server.position
        about = "about " if place and place > EXACT_POSITIONS else ""
        rank = f", {about}number {place} in line" if place else ""
        verb = "want" if server.here else "wants"
        yield (
            f"{_name(server)} {verb} {count_gpus(server.owed)} more{rank}."
            if server.has
            else (f"{_name(server)} {verb} {count_gpus(server.owed)}{rank}.")
        )


def _row(gpu: MachineGpu, machine: Machine) -> tuple[str, ...]:
    busy = "" if gpu.load.utilisation is None else f"{gpu.load.utilisation:.0f} %"
    memory = format_bytes(gpu.memory)
    if gpu.load.memory is not None:
        memory = f"{format_bytes(gpu.load.memory)} of {memory}"
    words = [_part(part, machine.servers) for part in gpu.parts]
    if gpu.free and gpu.healthy:
        words.append("free" if gpu.free == MILLI_PER_GPU else f"{format_gpus(gpu.free)} free")
    if not gpu.healthy:
        words.append("not working")
    return f"GPU {gpu.index}", gpu.model, busy, memory, "; ".join(words)


def _part(part: GpuPart, servers: tuple[Server, ...]) -> str:
    who = "others" if part.server is None else _name(servers[part.server])
    amount = "" if part.milli == MILLI_PER_GPU else f" {format_gpus(part.milli)}"
    return f"{who}{amount}{' (being given back)' if part.draining else ''}"


def _name(server: Server) -> str:
    """Return a name for a server: ``"you"``, ``"ann in ~/work (port 8889)"``, ``"bob"``."""
    if server.here:
        return "you"
    where = f" in {server.folder}" if server.folder else ""
    port = f" (port {server.port})" if server.port else ""
    ended = " (ended)" if server.ended else ""
    return f"{server.user}{where}{port}{ended}"
