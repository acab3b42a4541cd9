"""Builds what the tests of the gate run: the gate in both forms, the stand-in driver, the programs."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .compiled import compiled

ROOT = Path(__file__).parents[2]
GATE = ROOT / "node_plugin" / "gate"
PROGRAMS = Path(__file__).parent / "clients"
STANDIN_NVML = ROOT / "tests" / "kernel" / "cuda" / "standin_nvml.c"
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
    "thread": ("-fsanitize=thread",),
}
"""Options of the compiler: equal ones everywhere, so that the gate is compiled once with each."""


def command(*arguments: str | Path, **env: str) -> None:
    """Run a command; include its output in the error if it fails."""
    words = [str(one) for one in arguments]
    done = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")


@dataclass(frozen=True)
class Built:
    """The paths of what was built. `sockets` is the directory built into the shim: a link that a test may move."""

    folder: Path

    @property
    def driver(self) -> Path:
        """Return the folder of the stand-in driver."""
        return self.folder / "driver"

    @property
    def gate(self) -> Path:
        """Return the folder of the local form, with links to the driver."""
        return self.folder / "gate"

    @property
    def shim(self) -> Path:
        """Return the folder of the shim."""
        return self.folder / "shim"

    @property
    def sockets(self) -> Path:
        """Return the directory of sockets that is built into the shim."""
        return self.folder / "sockets"

    def program(self, name: str) -> Path:
        """Return the path of a compiled program of `clients`."""
        return self.folder / name


def build(folder: Path, flags: Sequence[str] = ()) -> Built:
    """Build everything; `flags`, such as those of a sanitizer, are for the gate and the programs: then without a shim.

    The test program is built twice: one looks for the driver, the other is linked with it (`linked`).
    """
    built = gate_and_driver(folder, flags)
    if not flags:
        command(sys.executable, GATE / "build.py", "shim", built.shim / "libcuda.so.1", "--driver",
                built.driver / "libcuda.so.1", "--sockets", built.sockets)  # fmt: skip
    compile_program(built, "client", flags)
    for name in ("memory", "streams"):
        compile_program(built, name, [*flags, "-ldl"])
    compile_program(built, "kinds", flags, linked=True)
    compile_program(built, "client", [*flags, "-DLINKED"], "linked", linked=True)
    return built


def gate_and_driver(folder: Path, flags: Sequence[str] = ()) -> Built:
    """Build the stand-in driver and the local form of the gate; `flags` are for the gate."""
    built = Built(folder)
    build_driver(built.driver)
    build_gate(built.gate, built.driver / "libcuda.so.1", [f"--flag={flag}" for flag in flags])
    return built


def build_driver(folder: Path, *options: str | Path, **env: str) -> None:
    """Build the stand-in driver in ``folder``, with further options of the compiler."""
    script = GATE / "standin" / "build.sh"

    def make(output: Path) -> None:
        with tempfile.TemporaryDirectory(dir=output.parent) as made:
            command("sh", script, made, *options, **env)
            (Path(made) / "libcuda.so.1").rename(output)

    words = ("driver", *map(str, options), *(f"{name}={value}" for name, value in env.items()))
    compiled(folder / "libcuda.so.1", GATE, words, make)


def compile_program(
    built: Built, source: str, flags: Sequence[str] = (), name: str = "", *, linked: bool = False
) -> None:
    """Compile a program of `clients`, under its own or another name; ``linked``: with the driver."""
    words: list[str | Path] = ["-L", built.driver, "-l:libcuda.so.1"] if linked else []
    command("gcc", "-g", "-O1", "-w", "-pthread", PROGRAMS / f"{source}.c", "-o", built.program(name or source),
            *flags, *words)  # fmt: skip


def build_gate(folder: Path, driver: Path, option: Sequence[str] = (), **env: str) -> Path:
    """Build the local form in front of ``driver``, laid out as in the product; return its folder."""

    def make(output: Path) -> None:
        command(sys.executable, GATE / "build.py", "local", output, *option, **env)

    words = ("local", *option, *(f"{name}={value}" for name, value in env.items()))
    compiled(folder / "libcuda.so.1", GATE, words, make)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libjupyter_gpu_driver.so.1").symlink_to(driver)
    return folder


def build_nvml(folder: Path, nvml: Path, **env: str) -> Path:
    """Build the library in front of ``nvml``, laid out as in the product; return its folder."""

    def make(output: Path) -> None:
        command(sys.executable, GATE / "build.py", "local", output, "--nvml", **env)

    compiled(folder / "libnvidia-ml.so.1", GATE, ("nvml", *(f"{name}={value}" for name, value in env.items())), make)
    (folder / "libjupyter_gpu_nvml.so.1").symlink_to(nvml)
    return folder


def build_standin_nvml(folder: Path, cc: str = "gcc") -> Path:
    """Build what stands for NVML in ``folder``; return its path."""
    library = folder / "libnvidia-ml.so.1"
    folder.mkdir(exist_ok=True)
    command(cc, "-shared", "-fPIC", "-pthread", STANDIN_NVML, "-o", library, "-Wl,-soname,libnvidia-ml.so.1")
    return library


def build_entries(program: Path, driver: Path, cc: str = "gcc", source: str = "entries.c") -> Path:
    """Build a program of `clients` with all of the gate in it, in front of the driver in that folder."""
    listed = re.search(r"^PARTS = \(([^)]*)\)", (GATE / "build.py").read_text(), re.MULTILINE)
    assert listed
    parts = [GATE / name for name in re.findall(r'"(.+?)"', listed[1])]
    flags = ("-std=gnu11", "-g", "-O2", "-I", str(GATE))
    gate = program.with_name(f"{program.name}.gate")
    compiled(gate, GATE, ("object", cc), lambda output: command(cc, *flags, "-r", "-nostdlib", *parts, "-o", output))
    command(cc, *flags, PROGRAMS / source, "-x", "none", gate, "-o", program, "-pthread",
            "-L", driver, "-Wl,--no-as-needed", "-l:libcuda.so.1", f"-Wl,-rpath,{driver}")  # fmt: skip
    return program
