"""A program on a lent GPU, with PyTorch and unmodified by us: bursts of an owner, or a guest's kernels without end.

    python lent_program.py

It says `ready` once it is warm. Each line of input is JSON, and so is its answer:

    {"burst": 5, "every": 0.1, "seconds": 3, "step": 0.6, "per": …}   µs of each burst to its first end, its last
    {"kernel": 1000, "seconds": 3, "per": …}   how many kernels of so many microseconds ended
    {"cycles": 1}   how many of the GPU's cycles are a microsecond: `per` of the others
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
        answer = measured() if "cycles" in asked else guest(**asked) if "kernel" in asked else owner(**asked)
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


def owner(burst: int, every: float, seconds: float, step: float, per: float) -> list[list[float]]:
    """Run bursts of kernels of a millisecond; programs with different steps meet by chance alone."""
    first, cycles, found = torch.cuda.Event(), int(1000 * per), []
    number, begin = 0, time.monotonic()
    end = begin + seconds
    while begin < end:
        torch.cuda._sleep(cycles)
        first.record()
        first.synchronize()
        began = time.monotonic() - begin
        for _ in range(burst - 1):
            torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
        found.append([began * 1e6, (time.monotonic() - begin) * 1e6])
        number += 1
        time.sleep(max(0.0, begin + every * (0.6 + 0.8 * (number * step % 1)) - time.monotonic()))
        begin = time.monotonic()
    return found


def guest(kernel: float, seconds: float, per: float) -> Any:
    """Keep work on the GPU, some kernels deep."""
    marks = [torch.cuda.Event() for _ in range(_DEPTH)]
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        mark = marks[done % _DEPTH]
        if done >= _DEPTH:
            mark.synchronize()
        torch.cuda._sleep(int(kernel * per))
        mark.record()
        done += 1
    ended = done - sum(not mark.query() for mark in marks)
    torch.cuda.synchronize()
    return ended


main()
