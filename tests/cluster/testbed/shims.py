"""Leftovers of a cluster outside its control groups: shims of containers, and mounts below its folder."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.testbed.commands import SECONDS, run, until


def end(folder: Path) -> None:
    """Kill the shims whose containerd listened below this folder, known by that very argument of theirs."""

    def none_left() -> bool:
        left = list(_shims(folder))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return not left

    until(none_left, SECONDS, f"the containers of {folder} to end")


def unmount(folder: Path) -> None:
    """Take away whatever is mounted below the folder, so that removing the folder removes only what is in it."""
    for point in reversed(mounts(folder)):
        run("umount", "--lazy", point)


def mounts(folder: Path) -> list[Path]:
    """Return the mounts below the folder, as this process sees them, in the order in which they were made."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines]
    return [point for point in points if point.is_relative_to(folder)]


def _shims(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it ended meanwhile
        if not Path(words[0]).name.startswith("containerd-shim") or "-address" not in words[:-1]:
            continue
        if Path(words[words.index("-address") + 1]).is_relative_to(folder):
            yield int(entry.name)
