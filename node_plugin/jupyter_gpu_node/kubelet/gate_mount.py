"""The gate for containers, placed on the host.

It stands at the path of ``libcuda.so.1`` in every container with a slot (`gated`), and another library can stand at
that of NVML. Containers keep the files that they were started with; one that starts again gets what lies there then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.kubelet.rules.allocation import DRIVER, NVML, Mount
from jupyter_gpu_node.settings import Settings
from jupyter_gpu_node.shares import gate_files

from . import driver_files

NAME = DRIVER


class Gate:
    """The gate of this node. ``find`` returns its path in this installation.

    With ``before_nvml`` a library is placed before NVML, too. Only programs that are parked need it, and it has not run
    before a real NVML yet, so nothing places it until then.
    """

    def __init__(
        self, state: Path, find: Callable[[], Path | None] = gate_files.shim, *, before_nvml: bool = False
    ) -> None:
        self._folder = state / "gate"
        self._find = find
        self._before_nvml = before_nvml
        self.file: Path | None = None
        """At the same path on the host and here; None: there is none."""
        self.nvml: Path | None = None
        """The library that stands before NVML; None: there is none, or no gate."""
        self.problem = "it has not been put into place yet"
        """Reason why there is no gate; empty: there is one."""

    def install(self) -> None:
        """Put the gate of this installation into its place on the host. Blocks."""
        shim = self._find()
        if shim is None:
            self.problem = "this installation of the node plugin has no gate: it was built without a C compiler"
            return
        self.nvml = None
        try:
            self.file, self.problem = _placed(shim.read_bytes(), self._folder / NAME), ""
            if os.statvfs(self._folder).f_flag & os.ST_NOEXEC:  # no program could load it, and each would fail
                self.file = None
                self.problem = f"{self._folder} is on a file system that is mounted noexec; remount it with exec"
            elif self._before_nvml and (nvml := gate_files.nvml_beside(shim)):
                self.nvml = _placed(nvml.read_bytes(), self._folder / NVML)
        except OSError as error:
            self.file, self.problem = None, f"the gate cannot be put into {self._folder}: {error.strerror or error}"


def mounts(settings: Settings, gate: Gate | None) -> tuple[Mount, ...]:
    """Return the driver's files of a container that is made now, the gate before them if it has one. Blocks."""
    driver = driver_files.find(settings)
    if gate and gate.file and settings.shares.enforce:
        return allocation.gated(driver, str(gate.file), str(gate.nvml or ""))
    return driver


def _placed(text: bytes, path: Path) -> Path:
    """Replace the file only if it differs, and as a whole: containers map it while they run."""
    folder, draft = path.parent, path.with_name(f".{path.name}.new")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if path.is_file() and not path.is_symlink() and path.read_bytes() == text:
        return path
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
        file.flush()
        os.fchmod(descriptor, 0o644)  # whatever this process's mask is
        os.fsync(descriptor)  # half a library would end every program of every container
    draft.replace(path)
    return path
