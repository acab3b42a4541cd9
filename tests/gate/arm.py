"""The gate on aarch64, emulated by QEMU: as a process, or in a machine with Debian's kernel.

QEMU's emulation of a process has no restartable sequences, like an older C library; that of a machine has them.
"""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from .building import PROGRAMS, ROOT, build_driver, build_entries, build_gate, command

CC = "aarch64-linux-gnu-gcc"
TREE = Path("/usr/aarch64-linux-gnu")
"""The C library, from a package of the compiler."""
LIBRARIES = ("ld-linux-aarch64.so.1", "libc.so.6")
KERNEL = ROOT / ".cache" / "aarch64" / "vmlinuz"
"""Taken out of its package by ``scripts/test``."""
PROCESS = bool(shutil.which(CC) and shutil.which("qemu-aarch64"))
"""Whether a process can be emulated here, and whether a machine can."""
MACHINE = bool(shutil.which(CC) and shutil.which("qemu-system-aarch64") and KERNEL.exists())
FILE, FOLDER = 0o100755, 0o40755


class Arm:
    """The gate, the driver and the programs for aarch64, built in a folder."""

    def __init__(self, folder: Path) -> None:
        self.gate, self.client, self._folder = folder / "gate", folder / "client", folder
        self._driver = folder / "driver"
        build_driver(self._driver, CC=CC)
        build_gate(self.gate, self._driver / "libcuda.so.1", CC=CC)
        command(CC, "-g", "-O1", "-w", "-pthread", PROGRAMS / "client.c", "-o", self.client)
        self.entries = build_entries(folder / "entries", self._driver, CC)
        build_entries(folder / "parked", self._driver, CC, source="parked.c")

    def process(self, *arguments: str | Path, **env: str) -> list[str]:
        """Return the command that runs a program in an emulated process; ``env`` is for that program alone."""
        own = [word for name, value in env.items() for word in ("-E", f"{name}={value}")]
        return ["qemu-aarch64", "-L", str(TREE), *own, *map(str, arguments)]

    def machine(self, *runs: str) -> list[str]:
        """Start a machine that runs each of these commands; return the lines that they print.

        A command may begin with variables; the test programs are "/entries" and "/parked".
        """
        command(CC, "-O1", "-w", PROGRAMS / "init.c", "-o", self._folder / "init")
        files = {f"lib/{name}": (TREE / "lib" / name).read_bytes() for name in LIBRARIES}
        files["lib/libcuda.so.1"] = (self._driver / "libcuda.so.1").read_bytes()
        files |= {name: (self._folder / name).read_bytes() for name in ("init", "entries", "parked")}
        files["runs"] = "".join(f"{run}\n" for run in runs).encode()
        image = self._folder / "image"
        image.write_bytes(_archive([("lib", b"", FOLDER), *((name, data, FILE) for name, data in files.items())]))
        done = subprocess.run(
            ["qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a57", "-smp", "2", "-m", "256", "-nodefaults",
             "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", str(KERNEL), "-initrd", str(image),
             "-append", "console=ttyAMA0 quiet panic=-1"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [line.strip() for line in done.stdout.splitlines() if not line.startswith("[")]


def _archive(files: Iterable[tuple[str, bytes, int]]) -> bytes:
    """Return the files as an archive that the kernel unpacks (cpio, "newc")."""
    made = b""
    for number, (name, data, mode) in enumerate([*files, ("TRAILER!!!", b"", 0)]):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        for part in ("070701" + "".join(f"{field:08x}" for field in fields) + name + "\0").encode(), data:
            made += part + bytes(-len(part) % 4)
    return made
