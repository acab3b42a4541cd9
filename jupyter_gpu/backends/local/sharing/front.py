"""The folder in which programs find the gate in front of the driver.

A program that uses CUDA opens ``libcuda.so.1``, and looks here first (``LD_LIBRARY_PATH``). There that is the gate,
which finds the driver by a link beside it. A program that does not open it never sees the gate. So it can be
with NVML, ``libnvidia-ml.so.1``, where the driver can park a process: what lies here answers while it is parked.

A user that can change the folder decides what all programs of this user run, so it lies where no other user can.
Its name is made of what it leads to: it never changes, means the same on every machine that has this home, and stays
when the server ends, for programs that outlive it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu.common.rules.search_path import VARIABLE, can_be_named, entries
from jupyter_gpu_node.gpus.rules.checkpoints import can_park
from jupyter_gpu_node.shares import gate_files

BEHIND = "libjupyter_gpu_driver.so.1"
"""By which the gate finds the driver; as in its build."""
_NAMES = ("libcuda.so.1", "libcuda.so")
"""By which programs open the driver."""
_NVML_NAMES = (gate_files.NVML, gate_files.NVML.removesuffix(".1"))
_SECONDS = 10.0
_ASK = f"""
import ctypes
for name in {(_NAMES[0], _NVML_NAMES[0])!r}:
    try:
        ctypes.CDLL(name)
    except OSError:
        print()
        continue
    with open("/proc/self/maps") as maps:
        print(next(line.split(None, 5)[5].rstrip() for line in maps if "/" + name[:-2] in line))
"""


class Driver(NamedTuple):
    """The files that the loader finds for programs: the driver, and NVML where a process can be parked."""

    cuda: Path
    nvml: Path | None


found_drivers: dict[str, Driver] = {}
"""Drivers that the loader named, by search path."""
temporary_folders: list[Path] = []
"""Folders made where the user's cache cannot be used."""


def folder(environ: Mapping[str, str], *, before_nvml: bool = False) -> str | None:
    """Return the folder for programs with this environment; None if they find no driver, and so use no GPU.

    Only programs that are parked need what stands ``before_nvml``, so nothing asks for it until then.

    Blocks; any thread may ask. Raises `OSError` if it cannot be made.
    """
    gate, driver = gate_files.local(), _found(environ)
    if gate is None or driver is None:
        return None
    links = {**dict.fromkeys(_NAMES, gate), BEHIND: driver.cuda}
    if before_nvml and driver.nvml is not None and (before := gate_files.nvml_beside(gate)):
        links |= {**dict.fromkeys(_NVML_NAMES, before), gate_files.NVML_BEHIND: driver.nvml}
    return str(_made(links))


def driver_of(environ: Mapping[str, str]) -> Path | None:
    """Find the driver for programs with this environment, whatever stands in front of it."""
    found = _found(environ)
    return found and found.cuda


def _found(environ: Mapping[str, str]) -> Driver | None:
    search = ":".join(one for one in entries(environ.get(VARIABLE)) if not (Path(one) / BEHIND).is_symlink())
    known = found_drivers.get(search)
    if known is None or not all(path.exists() for path in known if path):
        known = _ask(search)
        if known is not None:  # what is missing may be installed later
            found_drivers[search] = known
    return known


def _ask(search: str) -> Driver | None:
    """Ask the loader, which has a cache and rules of its own, by a small process in which no CUDA starts."""
    try:
        done = subprocess.run(  # noqa: S603 - this Python
            [sys.executable, "-I", "-S", "-c", _ASK], env={VARIABLE: search} if search else {}, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SECONDS,
        )  # fmt: skip
        cuda, nvml = (Path(os.fsdecode(line)) if line else None for line in done.stdout.split(b"\n")[:2])
    except (OSError, subprocess.SubprocessError):
        return None
    if cuda is None:
        return None
    parks = nvml is not None and can_park(nvml.name)
    return Driver(_lasting(cuda, _NAMES[0]), _lasting(nvml, _NVML_NAMES[0]) if nvml and parks else None)


def _lasting(found: Path, name: str) -> Path:
    """Return the link to a file, if there is one: it outlives an update of the driver, which renames the file."""
    link = found.with_name(name)
    return link if link.exists() and link.samefile(found) else found


def _made(links: Mapping[str, Path]) -> Path:
    name = hashlib.sha256("\0".join(f"{name} {target}" for name, target in links.items()).encode()).hexdigest()[:16]
    made = None
    for base in (_home(), *temporary_folders):
        if base is None:
            continue
        with contextlib.suppress(OSError):
            made = _filled(base / name, links)
            break
    if made is None:
        temporary_folders.append(Path(tempfile.mkdtemp(prefix="jupyter-gpu-")))
        made = _filled(temporary_folders[-1] / name, links)
    return made


def _home() -> Path | None:
    """Return a folder below the user's cache; None where that has no usable name."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - Path raises without a home
    return Path(home) / "jupyter-gpu" / "driver" if os.path.isabs(home) and can_be_named(home) else None  # noqa: PTH117


def _filled(folder: Path, links: Mapping[str, Path]) -> Path:
    """Fill the folder with these links. Raises `OSError`, also if another user could change it."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for part in (folder, folder.parent):
        about = part.lstat()
        if about.st_uid != os.geteuid() or not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
            raise PermissionError(f"{part} can be changed by others")
    for name, target in links.items():
        path = folder / name
        if not path.is_symlink() or path.readlink() != target:
            draft = folder / f".{secrets.token_hex(8)}"
            draft.symlink_to(target)
            draft.replace(path)
    return folder
