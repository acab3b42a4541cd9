"""A program of Numba's, unmodified by us: training that always has work, or a notebook that has some now and then.

    python numba_program.py hog SECONDS
    python numba_program.py notebook SECONDS BURST EVERY
    python numba_program.py train SECONDS PAUSE

Training prints how many microseconds a step took, in which the program has other things to do for PAUSE microseconds
while the GPU has 16 ms of work. A notebook prints a line for each burst: when it began by CLOCK_MONOTONIC, in
microseconds, and how long it took. BURST is in kernels of a millisecond, EVERY in milliseconds. All wait for a line of
input once they have compiled.
"""

import sys
import time

from numba import config, cuda  # type: ignore[import-not-found]

config.CUDA_LOW_OCCUPANCY_WARNINGS = False


@cuda.jit
def work_us1000(there):  # type: ignore[no-untyped-def]
    """A millisecond on the stand-in GPU, as its name says."""
    there[0] = 1


@cuda.jit
def work_us2500(there):  # type: ignore[no-untyped-def]
    """Take as long as a large product of matrices."""
    there[0] = 1


@cuda.jit
def work_us100(there):  # type: ignore[no-untyped-def]
    """Take as long as an optimizer's step on a layer."""
    there[0] = 1


def main() -> None:
    """Run the program until its time is over."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    there = cuda.device_array(32)
    work_us1000[1, 32](there)
    cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    if kind == "train":
        train(there, end, int(sys.argv[3]))
    elif kind == "hog":
        while time.monotonic() < end:
            work_us1000[1, 32](there)
    else:
        notebook(there, end, int(sys.argv[3]), int(sys.argv[4]) / 1000)


def train(there: object, end: float, pause: int) -> None:
    """Run forward, backward and the optimizer's step, before which Python has much to do."""
    steps, began = 0, 0.0
    while time.monotonic() < end or steps < 2:
        if steps == 1:  # kernels are compiled, and it is known how long they take
            cuda.synchronize()
            began = time.monotonic()
        for _ in range(6):
            work_us2500[1, 32](there)
        busy = time.monotonic() + pause / 1e6
        while time.monotonic() < busy:
            pass
        for _ in range(10):
            work_us100[1, 32](there)
        steps += 1
    cuda.synchronize()
    print((time.monotonic() - began) * 1e6 / (steps - 1), flush=True)


def notebook(there: object, end: float, burst: int, every: float) -> None:
    """Run bursts at moments that coincide with no other period."""
    number = 0
    began = time.monotonic()
    while began < end:
        for _ in range(burst):
            work_us1000[1, 32](there)
        cuda.synchronize()
        print(round(began * 1e6), round((time.monotonic() - began) * 1e6), flush=True)
        number += 1
        time.sleep(max(0.0, began + every * (0.9 + 0.2 * (number * 0.618 % 1)) - time.monotonic()))
        began = time.monotonic()


main()
