"""Names by which a server and its programs find each other: the sides are `local_endpoint` and `discovery`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FILE = "JUPYTER_GPU_SERVER"
"""Variable with the path of the file of the server that a process belongs to."""


DASK = "jupyter-gpu/dask/"
"""Path of the pages of Dask's schedulers, below the server's own."""


def dask_socket(folder: Path, name: str) -> Path:
    """Return the path of the socket where a scheduler of Dask with this name has its pages."""
    return folder / f"jupyter-gpu-dask-{name}.sock"


def here() -> str:
    """Return a digest of the machine, its boot and the pid namespace: where it is the same, a pid means the same
    process.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - no file
    except OSError:
        boot, space = "", 0
    return digest(os.uname().nodename, boot, str(space))


def digest(*words: str) -> str:
    """Return a digest of ``words`` for a file's name."""
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:16]


def runtime_dir(env: Mapping[str, str]) -> Path:
    """Return Jupyter's runtime directory by the rules of jupyter_core for Linux."""
    if given := env.get("JUPYTER_RUNTIME_DIR"):
        return Path(given)
    if data := env.get("JUPYTER_DATA_DIR"):
        return Path(data) / "runtime"
    home = env.get("XDG_DATA_HOME") or Path(env.get("HOME") or Path.home()) / ".local" / "share"
    return Path(home) / "jupyter" / "runtime"


@contextmanager
def short(path: str) -> Iterator[str]:
    """Yield an address of the socket ``path`` that fits into 108 bytes, whatever its folder. Raises `OSError`."""
    if len(os.fsencode(path)) < 108:
        yield path
        return
    name = os.path.basename(path)  # noqa: PTH119 - an address
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # noqa: PTH120
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)
