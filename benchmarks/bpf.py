"""The cost of a change of device rules, and of rules for each open(), on the running kernel."""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices import bpf, cgroup
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules

from .lib.figures import CannotRunError, Figure

COMMAND = "scripts/bench bpf"
SAMPLES = 2000
NAME = "jupyter_gpu_b"
# Devices with the major number of /dev/null, whose open() does nothing else. Every other minor, to form no range.
DENIED = tuple(Device(1, minor) for minor in range(100, 228, 2))


def run() -> Sequence[Figure]:
    """Measure a replacement against a mere query, a whole change of 8 rules, and open() with close()."""
    if os.geteuid():
        raise CannotRunError("attaching programs needs root")
    hierarchy = cgroup.mounts().unified
    if hierarchy is None:
        raise CannotRunError("there is no cgroup v2 hierarchy")
    with _inside_a_group(hierarchy.directory(cgroup.membership()[""])) as group:
        _open_and_close()
        free = _timed(_open_and_close)
        program = bpf.load(compile_rules(_rules(64)), NAME)
        bpf.attach(group, program)
        guarded = _timed(_open_and_close)
        swap = _Swap(group, program)
        asked = _timed(lambda: bpf.attached(group))  # a bpf(2) call that changes nothing, by the same way
        replace = _timed(swap.between_two())
        change = _timed(swap.rules_of_eight)
    return [
        Figure.of("BPF: replace", "µs", replace, COMMAND, baseline=asked),
        Figure.of("BPF: compile, load, replace, 8 rules", "µs", change, COMMAND, baseline=replace),
        Figure.of("open and close under 64 rules", "µs", guarded, COMMAND, baseline=free),
    ]


class _Swap:
    """Replaces the program of a group in one step, again and again."""

    def __init__(self, group: Path, program: bpf.Program) -> None:
        self.group = group
        self.current = program
        self.numbers = cycle(range(8))

    def to(self, program: bpf.Program) -> None:
        """Replace the current program by ``program``."""
        bpf.attach(self.group, program, replaces=self.current)
        self.current = program

    def between_two(self) -> Callable[[], None]:
        """Alternate between two loaded programs."""
        programs = cycle([bpf.load(compile_rules(_rules(8, allowed)), NAME) for allowed in (1, 2)])
        return lambda: self.to(next(programs))

    def rules_of_eight(self) -> None:
        """Do the kernel's part of a whole resize, with other rules each time."""
        old = self.current
        self.to(bpf.load(compile_rules(_rules(8, next(self.numbers))), NAME))
        old.close()


def _rules(count: int, allowed: int = 0) -> DeviceRules:
    return DeviceRules(frozenset(DENIED[:count]), frozenset(DENIED[:allowed]))


def _open_and_close() -> None:
    os.close(os.open("/dev/null", os.O_RDWR))


def _timed(work: Callable[[], object]) -> list[float]:
    """Return the microseconds of each of many runs."""
    spent = []
    for _ in range(SAMPLES):
        begin = time.perf_counter_ns()
        work()
        spent.append((time.perf_counter_ns() - begin) / 1000)
    return spent


@contextmanager
def _inside_a_group(parent: Path) -> Iterator[Path]:
    """Move this process to a group of its own and back; the program goes with the group."""
    group = cgroup.create(parent, f"bench-{secrets.token_hex(6)}")
    try:
        cgroup.enter(group, os.getpid())
        yield group
    finally:
        cgroup.enter(parent, os.getpid())
        cgroup.remove(group)
