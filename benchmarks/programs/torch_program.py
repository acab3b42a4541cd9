"""A program of PyTorch's, unmodified by us: training, kernels of a millisecond without end, or bursts of them.

    python torch_program.py train SECONDS WIDTH ROUNDS
    python torch_program.py cycles
    python torch_program.py hog SECONDS CYCLES WARM
    python torch_program.py notebook SECONDS CYCLES BURST EVERY
    python torch_program.py idle

Each says `ready` once it is warm, waits for a line of input, and says what it measured: `train`, once for each line of
input, the microseconds of a step and the nanoseconds of a launch, `cycles` how many of the GPU's are a millisecond,
`hog` how many kernels of CYCLES ended after WARM seconds, and `notebook` a line for each burst: microseconds until its
first kernel ended, and its last. BURST is in kernels, EVERY in milliseconds. `idle` says nothing.
"""

import sys
import time
from collections.abc import Callable

import torch  # type: ignore[import-not-found]

_DEPTH = 64
"""Kernels that a hog queues on the GPU at once: programs that train run about as far ahead."""


def main() -> None:
    """Run one of the programs."""
    kind, *words = sys.argv[1:]
    kinds: dict[str, Callable[..., None]] = {
        "train": train,
        "cycles": cycles,
        "hog": hog,
        "notebook": notebook,
        "idle": idle,
    }
    kinds[kind](*map(float, words))


def ready() -> None:
    """Print that it is warm; continue when all are."""
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()


def train(seconds: float, width: float, rounds: float) -> None:
    """Train: a small model has kernels of some microseconds, a wide one of some hundred."""
    wide = int(width)
    model = torch.nn.Sequential(
        torch.nn.Linear(wide, wide), torch.nn.ReLU(), torch.nn.Linear(wide, wide), torch.nn.ReLU(),
        torch.nn.Linear(wide, 16),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, wanted = torch.randn(wide, wide, device="cuda"), torch.randn(wide, 16, device="cuda")

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), wanted).backward()
            optimizer.step()
        torch.cuda.synchronize()

    steps(20)
    ready()
    for _ in range(int(rounds)):
        done, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            steps(20)
            done += 20
        print(passed * 1e6 / done, launch(), flush=True)
        sys.stdin.readline()


def launch() -> float:
    """Return the nanoseconds of launches of kernels that do nothing."""
    took = []
    for _ in range(50):
        began = time.perf_counter_ns()
        for _ in range(500):
            torch.cuda._sleep(0)
        took.append((time.perf_counter_ns() - began) / 500)
        torch.cuda.synchronize()
    return sorted(took)[len(took) // 2]


def cycles() -> None:
    """Return the GPU cycles of a millisecond, on an otherwise idle GPU with a warm clock."""
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    ready()
    for _ in range(1000):
        torch.cuda._sleep(1_000_000)
    ends[0].record()
    for _ in range(1000):
        torch.cuda._sleep(1_000_000)
    ends[1].record()
    ends[1].synchronize()
    print(round(1e9 / ends[0].elapsed_time(ends[1])))


def hog(seconds: float, cycles: float, warm: float) -> None:
    """Keep work on the GPU, but never more than a few kernels."""
    marks = [torch.cuda.Event() for _ in range(_DEPTH)]
    ready()
    done, before = 0, -1

    def ended() -> int:
        return done - sum(not mark.query() for mark in marks)

    begin = time.monotonic() + warm
    while (now := time.monotonic()) < begin + seconds:
        if before < 0 and now >= begin:
            before = ended()
        mark = marks[done % _DEPTH]
        if done >= _DEPTH:
            mark.synchronize()
        torch.cuda._sleep(int(cycles))
        mark.record()
        done += 1
    print(ended() - before)


def notebook(seconds: float, cycles: float, burst: float, every: float) -> None:
    """Run bursts at moments that coincide with no other period."""
    first = torch.cuda.Event()
    ready()
    number, begin = 0, time.monotonic()
    end = begin + seconds
    while begin < end:
        torch.cuda._sleep(int(cycles))
        first.record()
        first.synchronize()
        began = time.monotonic() - begin
        for _ in range(int(burst) - 1):
            torch.cuda._sleep(int(cycles))
        torch.cuda.synchronize()
        print(round(began * 1e6), round((time.monotonic() - begin) * 1e6), flush=True)
        number += 1
        time.sleep(max(0.0, begin + every / 1000 * (0.9 + 0.2 * (number * 0.618 % 1)) - time.monotonic()))
        begin = time.monotonic()


def idle() -> None:
    """Have used the GPU, and do nothing more."""
    torch.ones(8, device="cuda")
    ready()


main()
