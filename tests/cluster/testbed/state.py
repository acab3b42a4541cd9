"""Files of clusters: one folder each, and the process that it belongs to."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed.commands import ClusterError
from tests.cluster.testbed.processes import Process

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")


def home() -> Path:
    """The folder that has all clusters of this user."""
    return _base() / "clusters"


def folder(name: str) -> Path:
    """Return the folder of the cluster with this name. Raises ClusterError for a name that cannot be one."""
    if not NAME.fullmatch(name):
        raise ClusterError(f"{name!r} cannot be the name of a cluster: 1 to 20 lower-case letters, digits and dashes.")
    return home() / name


def planes() -> Path:
    """The folder that has all control planes without nodes."""
    return _base() / "planes"


def fresh() -> Path:
    """A new folder for a control plane that belongs to this process."""
    planes().mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=planes()))
    own(made)
    return made


def own(state: Path) -> None:
    """Let the folder belong to this process."""
    Process.of(os.getpid()).write(owner_file(state))


def owner_file(state: Path) -> Path:
    """Return the file with the owner of the folder; folders that stay until they are removed have none."""
    return state / "owner.json"


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Let no other process make or remove this cluster during the block; the folder is there when it begins."""
    while True:
        state.mkdir(parents=True, exist_ok=True)
        lock = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not state.exists() or state.stat().st_ino != os.fstat(lock).st_ino:
                continue  # the process that had the lock removed the folder
            yield
            return
        finally:
            os.close(lock)


def every() -> tuple[str, ...]:
    """Names of all clusters of this user."""
    return tuple(sorted(path.name for path in home().glob("*") if NAME.fullmatch(path.name) and path.is_dir()))


def abandoned(folder: Path) -> Iterator[Path]:
    """Return those of these clusters or control planes whose process is gone, as after a killed test."""
    for state in sorted(folder.glob("*")):
        owner = Process.read(owner_file(state))
        if owner is not None and not owner.alive:
            yield state


def _base() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "jupyter-gpu"
