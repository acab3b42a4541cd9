"""Where clusters keep their files: one folder each, and who it belongs to."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.testbed.commands import ClusterError
from tests.cluster.testbed.processes import Process

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")


def home() -> Path:
    """The folder that has all clusters of this user."""
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "jupyter-gpu" / "clusters"


def folder(name: str) -> Path:
    """Of the cluster with this name. Raises ClusterError for a name that cannot be one."""
    if not NAME.fullmatch(name):
        raise ClusterError(f"{name!r} cannot be the name of a cluster: 1 to 20 lower-case letters, digits and dashes.")
    return home() / name


def fresh(prefix: str) -> Path:
    """A new folder that belongs to this process: when the process is gone, `abandoned` names it."""
    home().mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=prefix, dir=home()))
    own(made)
    return made


def own(state: Path) -> None:
    """Let the folder belong to this process."""
    Process.of(os.getpid()).write(state / "owner.json")


def abandoned() -> Iterator[Path]:
    """Folders whose process is gone: a test was killed, say."""
    for state in sorted(home().glob("*/owner.json")):
        owner = Process.read(state)
        if owner is not None and not owner.alive:
            yield state.parent
