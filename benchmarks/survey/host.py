"""Parking and the host: a memory limit of a control group, huge pages for one process, a user other than root."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from . import parking, process
from .answers import Case, ask, say
from .driver import Driver
from .failures import Program

_TREE = Path("/sys/fs/cgroup")
_GIB = 2**30
_HUGE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>
void *mmap(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "mmap");
    void *got = real(at, size, prot, flags, fd, offset);
    if (got != MAP_FAILED && size >= 2 << 20 && (flags & MAP_ANONYMOUS)) madvise(got, size, MADV_HUGEPAGE);
    return got;
}
void *mmap64(void *at, size_t size, int prot, int flags, int fd, off_t offset) {
    return mmap(at, size, prot, flags, fd, offset);
}
"""
"""A library that asks for huge pages wherever the program, and so the driver, maps fresh memory."""


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    """A control group that counts memory."""
    (_TREE / "cgroup.subtree_control").write_text("+memory")
    group = _TREE / f"survey-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        time.sleep(0.2)
        with contextlib.suppress(OSError):
            group.rmdir()


def limited_child(group: str, more: int) -> None:
    """Park 1 GiB where the control group has ``more`` bytes left; say what came of it."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    program = Program(_GIB)
    time.sleep(0.5)
    current = int((Path(group) / "memory.current").read_text())
    (Path(group) / "memory.swap.max").write_text("0")
    (Path(group) / "memory.max").write_text(str(current + more))
    say(current=current >> 20, more=more >> 20)
    park = program.park()
    say(park=park, **process.memory())
    if park[2] == 2:
        say(back=program.back())
    else:
        say(unlock=[program.steps.unlock(), program.steps.state()])
    (Path(group) / "memory.max").write_text("max")
    say(works=program.works(), again=[*program.park(), *program.back()], calls=program.steps.milliseconds)


def _limited(more: int) -> Case:
    def case() -> object:
        with _group() as group:
            code = f"from benchmarks.survey.host import limited_child; limited_child({str(group)!r}, {more})"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            print(done.stdout, end="", flush=True)
            events = (group / "memory.events").read_text().split()
        return {"status": done.returncode, "events": dict(zip(events[::2], events[1::2], strict=True)),
                "stderr": done.stderr[-300:], "a new program": Program().works()}  # fmt: skip

    return case


def no_root() -> object:
    """Park and return as a user without rights."""
    parking.prepare()
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    program = Program()
    found = {"park": program.park(), **process.holds(), "back": program.back(), "works": program.works()}
    return {**found, "native": parking.once()}


def checkpoint_child() -> None:
    """Say how long parks of 8 GiB take, and which of the process's memory is in huge pages meanwhile."""
    program = Program(8 * _GIB)
    for _ in range(2):
        program.park()
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        say(huge=[line for line in lines if line.startswith("AnonHuge")])
        program.back()
    say(calls=program.steps.milliseconds, works=program.works())


def huge_pages() -> object:
    """Park 8 GiB twice, with the pages of the system, and with huge pages asked for by the process; in turn."""
    with tempfile.TemporaryDirectory(prefix="huge") as folder:
        source, library = Path(folder) / "huge.c", Path(folder) / "huge.so"
        source.write_text(_HUGE)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        for preload in ("", str(library), "", str(library)):
            env = {**os.environ, **({"LD_PRELOAD": preload} if preload else {})}
            code = "from benchmarks.survey.host import checkpoint_child; checkpoint_child()"
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
            say(huge_pages=bool(preload), status=done.returncode, stderr=done.stderr[-200:])
            print(done.stdout, end="", flush=True)
    return Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()


def working_child() -> None:
    """Park, come back, and keep the GPU busy."""
    program = Program(2**28)
    print([*program.park(), *program.back()], flush=True)
    while True:
        program.driver.spin(0.01)
        program.driver.call("cuCtxSynchronize")


def kill_at_work() -> object:
    """Kill a process that came back from a park and is at work, five times; whether another program works then."""
    found = []
    for _ in range(5):
        code = "from benchmarks.survey.host import working_child; working_child()"
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        said = child.stdout.readline().strip()
        time.sleep(0.5)
        child.send_signal(signal.SIGKILL)
        began = time.monotonic()
        child.wait(60)
        found.append([said, round(time.monotonic() - began, 3)])
    return {"killed": found, "a new program": Program().works(), "driver": Driver().call("cuInit", 0)}


CASES: dict[str, Case] = {
    "limit, 300 MiB left": _limited(300 * 2**20),
    "limit, 1700 MiB left": _limited(1700 * 2**20),
    "no root": no_root,
    "huge pages": huge_pages,
    "kill at work": kill_at_work,
}

if __name__ == "__main__":
    parking.prepare()
    ask(CASES, apart=__spec__.name)
