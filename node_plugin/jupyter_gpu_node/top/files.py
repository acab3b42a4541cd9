"""Finds and reads what the servers of time shares on this machine wrote of them. It blocks, and believes nothing.

The node plugin keeps its copies of the files in ``shares`` of its state directory, the arbiter of one machine in
``arbiters/<user>/own/shares`` of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu_node.shares.rules import share_file
from jupyter_gpu_node.shares.rules.share_file import ShareFile, ShareKey

DEFAULTS = (Path("/var/lib/jupyter-gpu"), Path("/run/lock/jupyter-gpu"), Path("/tmp/jupyter-gpu"))  # noqa: S108 - only read
"""State directories of the node plugin and of servers on one machine."""
MAX_RECORD = 4 * 2**20
MOST = 4096
"""Limit on anything in one directory."""


def read(states: Iterable[Path]) -> Mapping[ShareKey, ShareFile]:
    """Read all shares in these state directories; of one that is there twice, what was written last."""
    found: dict[ShareKey, ShareFile] = {}
    for state in states:
        for own in homes(state):
            for key, file in _shares(own / "shares"):
                if key not in found or file.written > found[key].written:
                    found[key] = file
    return found


def homes(state: Path) -> Iterator[Path]:
    """Yield the directories for files of shares. In a shared state directory no user can speak for another."""
    if _owner(state / "shares") in (0, os.geteuid()):
        yield state
    for name in _names(state / "arbiters"):
        if name.isdecimal() and _owner(state / "arbiters" / name) == int(name):
            yield state / "arbiters" / name / "own"


def names(states: Iterable[Path], pods: Iterable[str]) -> Mapping[str, str]:
    """Return names of pods, as far as they are known: namespace and name, or the process of their server."""
    wanted = set(pods)
    found: dict[str, str] = {}
    for state in states:
        found.update(_slots(state / "slots.json"))
        for pod in wanted - found.keys():
            if server := _server(state / "pods" / f"{pod}.json"):
                found[pod] = f"{pod[:8]} pid {server}"
    return {pod: name for pod, name in found.items() if pod in wanted}


def _shares(folder: Path) -> Iterator[tuple[ShareKey, ShareFile]]:
    for gpu in _names(folder):
        for name in _names(folder / gpu):
            if name.startswith(".") or not name.endswith(".json"):
                continue
            with contextlib.suppress(OSError, ValueError):  # it ended at this moment, or is of another version
                file = share_file.decode(_read(folder / gpu / name, share_file.MAX_BYTES))
                if file.share.uuid == gpu:
                    yield (gpu, strict.printable(name.removesuffix(".json"), 64)), file


def _slots(path: Path) -> Mapping[str, str]:
    """Read names from the node plugin's record of slots."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        body = json.loads(_read(path, MAX_RECORD))
        pods = [item["pod"] for item in body["slots"] if "pod" in item]
        return {pod["uid"]: strict.printable(f"{pod['namespace']}/{pod['name']}", 256) for pod in pods}
    return {}


def _server(path: Path) -> int | None:
    """Read the server's pid from the record of a pod on one machine."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(_read(path, MAX_RECORD))["server"]["pid"])
    return None


def _owner(folder: Path) -> int | None:
    """Return the user of a directory that is no link; None if there is none."""
    with contextlib.suppress(OSError):
        about = folder.lstat()
        return about.st_uid if stat.S_ISDIR(about.st_mode) else None
    return None


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return sorted(os.listdir(descriptor))[:MOST]  # noqa: PTH208 - of a descriptor
        finally:
            os.close(descriptor)
    return []


def _read(path: Path, most: int) -> bytes:
    """Read a regular file; no link is followed, nothing is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file.")
        return file.read(most + 1)
