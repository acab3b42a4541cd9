"""A program of Numba's, unmodified by us: training that always has work, or a notebook that has some now and then.

    python _numba_program.py hog SECONDS
    python _numba_program.py notebook SECONDS BURST EVERY

A notebook prints a line for each burst: when it began by CLOCK_MONOTONIC, in microseconds, and how long it took. BURST
is in kernels of a millisecond, EVERY in milliseconds. Both wait for a line of input once they have compiled.
"""

import sys
import time

from numba import config, cuda  # type: ignore[import-not-found]

config.CUDA_LOW_OCCUPANCY_WARNINGS = False


@cuda.jit
def work_us1000(there):  # type: ignore[no-untyped-def]
    """A millisecond on the stand-in GPU, as its name says."""
    there[0] = 1


def main() -> None:
    """Until the time is over."""
    kind, seconds = sys.argv[1], float(sys.argv[2])
    there = cuda.device_array(32)
    work_us1000[1, 32](there)
    cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    if kind == "hog":
        while time.monotonic() < end:
            work_us1000[1, 32](there)
    else:
        notebook(there, end, int(sys.argv[3]), int(sys.argv[4]) / 1000)


def notebook(there: object, end: float, burst: int, every: float) -> None:
    """Bursts, at moments that do not beat with anything."""
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
