"""A program on a lent GPU, with PyTorch and unmodified by us: bursts of an owner, or a guest's kernels without end.

    python lent_program.py

It says `ready` once it is warm. Each line of input is JSON, and so is its answer:

    {"bursts": [[0, 20], …], "kernel": 250, "per": …}   µs until each burst's first kernel ran, its last one ended
    {"guest": 1000, "seconds": 3, "per": …}   how many kernels of so many microseconds ended
    {"cycles": 1}   how many of the GPU's cycles are a microsecond: `per` of the others

A burst is its moment, in microseconds from the line, and its number of kernels.
"""

import json
import sys
import time
from typing import Any

import torch  # type: ignore[import-not-found]

_DEPTH = 16
"""Kernels that a guest queues at once."""


def main() -> None:
    """Answer until the input ends."""
    torch.ones(8, device="cuda").sum().item()
    for _ in range(20):
        torch.cuda._sleep(1_000_000)
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = measured() if "cycles" in asked else guest(**asked) if "seconds" in asked else owner(**asked)
        print(json.dumps(answer), flush=True)


def measured() -> Any:
    """Return the GPU's cycles in a microsecond, with a warm clock."""
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for _ in range(300):
        torch.cuda._sleep(1_000_000)
    ends[0].record()
    for _ in range(300):
        torch.cuda._sleep(1_000_000)
    ends[1].record()
    ends[1].synchronize()
    return 300e6 / (ends[0].elapsed_time(ends[1]) * 1000)


def owner(bursts: list[tuple[int, int]], kernel: float, per: float) -> list[list[float]]:
    """Run each burst at its moment, or when the one before has ended."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    cycles, found, begin = int(kernel * per), [], time.monotonic()
    for moment, kernels in bursts:
        due = begin + moment / 1e6
        if (pause := due - time.monotonic()) > 0:
            time.sleep(pause)
            due = time.monotonic()  # that the machine wakes it late is no wait for the GPU
        for number in range(kernels):
            torch.cuda._sleep(cycles)
            if not number:
                first.record()
        last.record()
        last.synchronize()
        took = (time.monotonic() - due) * 1e6
        found.append([took - first.elapsed_time(last) * 1000 - kernel, took])
    return found


def guest(guest: float, seconds: float, per: float) -> Any:
    """Keep work on the GPU, some kernels deep."""
    marks = [torch.cuda.Event() for _ in range(_DEPTH)]
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        mark = marks[done % _DEPTH]
        if done >= _DEPTH:
            mark.synchronize()
        torch.cuda._sleep(int(guest * per))
        mark.record()
        done += 1
    ended = done - sum(not mark.query() for mark in marks)
    torch.cuda.synchronize()
    return ended


main()
