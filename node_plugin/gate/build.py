"""Builds the gate: ``build.py local|shim|both OUTPUT`` (``--help`` says more). Needs a C compiler and nothing else.

Both forms come from the same files, are called ``libcuda.so.1`` and need the real one. The shim stands at its path and
loads the real file by an absolute path; the local form is found before it, and loads it by another name, in the same
folder (`jupyter_gpu.backends.local.sharing.front`). ``both`` makes the folder ``lib`` of the node plugin, as in wheels.
In front of NVML stands ``libnvidia-ml.so.1`` (``--nvml``), in the same two forms.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PARTS = (
    "driver/entries.S", "driver/entries.c", "driver/driver.c", "driver/gated.c", "launches/launches.c",
    "driver/lookup.c", "driver/visible.c", "driver/looks.c", "launches/lease.c", "launches/window.c",
    "launches/queues.c",
    "launches/threads.c", "launches/events.c", "launches/pacing.c", "connection/connection.c", "memory/memory.c",
    "memory/table.c", "memory/allocate.c", "memory/pools.c", "memory/reserves.c", "memory/graphs.c",
    "memory/physical.c", "memory/external.c", "memory/contexts.c", "memory/modules.c", "memory/image.c",
    "launches/copies.c", "parking/later.c", "parking/marks.c", "parking/nvml.c",
    "parking/park.c", "parking/link.c",
)  # fmt: skip
"""The sources, in the order in which they are linked."""
NVML_PARTS = ("driver/entries.S", "driver/driver.c", "nvml/calls.c", "nvml/starts.c")
"""Those of the library in front of NVML."""
DRIVER = "/run/jupyter-gpu/driver/libcuda.so.1"
"""Path of the real driver in a pod, beside the shim."""
SOCKETS = "/run/jupyter-gpu/shares"
BEHIND = "libjupyter_gpu_driver.so.1"
"""Name by which the local form loads the real driver: a link beside it."""
NVML = "/run/jupyter-gpu/driver/libnvidia-ml.so.1"
"""Path of the real NVML in a pod."""
NVML_BEHIND = "libjupyter_gpu_nvml.so.1"
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Names of both libraries, in a folder for each form below ``lib``."""
GLIBC = (2, 17)
"""The oldest C library with which programs can load the gate. Programs with an older one would not start."""
MACHINES = {62: "x86_64", 183: "aarch64"}
"""ELF machine numbers of the processors that machines with NVIDIA GPUs have."""
FLAGS = (
    "-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
    # These two would need functions that only newer C libraries have, or that musl lacks.
    "-U_FORTIFY_SOURCE", "-fno-stack-protector",
    # Bind the gate's names to its own functions. Never unload it, as its threads run its code.
    "-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--hash-style=both",
)  # fmt: skip


class BuildError(Exception):
    """The gate cannot be built here; the message says why."""


def both(folder: Path) -> str:
    """Build both forms below ``folder``, or nothing; return their platform, as the name of a wheel has it.

    If they cannot be built, older ones are removed. Raises :class:`BuildError` and :class:`OSError`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Reproducible in every folder; a warning of a newer compiler is no reason to fail.
    flags = ["-g0", f"-ffile-prefix-map={HERE}=gate", "-Wno-error"]
    try:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".lib-") as work:
            new = Path(work) / "lib"
            made = [
                *(local(new / "local" / name, flags, nvml=name == NAMES[1]) for name in NAMES),
                *(shim(new / "shim" / name, flags=flags, nvml=name == NAMES[1]) for name in NAMES),
            ]
            platforms = {platform(library.read_bytes()) for library in made}
            if folder.exists():
                folder.rename(new.with_name("old"))
            new.rename(folder)
    except (BuildError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return platforms.pop()


def platform(library: bytes) -> str:
    """Return a library's platform tag; :class:`BuildError` if programs of older images could not start with it."""
    if library[:6] != b"\x7fELF\x02\x01" or (machine := int.from_bytes(library[18:20], "little")) not in MACHINES:
        raise BuildError(
            f"The gate is for 64-bit Linux on {' or '.join(MACHINES.values())}, and this is another platform."
        )
    needs = re.findall(rb"\0GLIBC_([0-9A-Z][^\0]*)", library)
    for version in needs:
        found = re.fullmatch(rb"(\d+)\.(\d+)(?:\.\d+)?", version)
        if found is None or (int(found[1]), int(found[2])) > GLIBC:
            said = version.decode(errors="replace")
            raise BuildError(
                f"The compiler made a gate that needs GLIBC_{said}, and it may need {GLIBC[0]}.{GLIBC[1]} at most: "
                "programs of images with an older C library than that would not start."
            )
    name = MACHINES[machine]
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{name}.manylinux2014_{name}" if needs else f"linux_{name}"


def local(output: Path, flags: Sequence[str] = (), *, nvml: bool = False) -> Path:
    """Build the form for LD_LIBRARY_PATH; the variable JUPYTER_GPU_GATE names the directory of the sockets."""
    here = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN", *flags]
    return _nvml(output, NVML_BEHIND, here) if nvml else _gate(output, BEHIND, here)


def shim(
    output: Path, driver: str = "", sockets: str = SOCKETS, flags: Sequence[str] = (), *, nvml: bool = False
) -> Path:
    """Build the form that stands at the path of the library, in front of the real one at ``driver``."""
    if nvml:
        return _nvml(output, driver or NVML, flags)
    return _gate(output, driver or DRIVER, [f'-DGATE_DIRECTORY="{sockets}"', *flags])


def _gate(output: Path, driver: str, flags: Sequence[str]) -> Path:
    return _link(output, NAMES[0], PARTS, driver, flags)


def _nvml(output: Path, driver: str, flags: Sequence[str]) -> Path:
    listed = ('-DFUNCTIONS="nvml/functions.def"', "-DSPARES=0", "-DSTUBS=0")
    return _link(output, NAMES[1], NVML_PARTS, driver, [*listed, *flags])


def _link(output: Path, name: str, parts: Sequence[str], driver: str, flags: Sequence[str]) -> Path:
    sources = [str(HERE / part) for part in parts]
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder) / "named.so"  # to link with: the real one may be missing here
        _run(["-shared", "-nostdlib", f"-Wl,-soname,{driver}", "-x", "c", "/dev/null", "-o", str(named)])
        needs = ["-Wl,--no-as-needed", str(named), "-Wl,--as-needed"]
        _run([*FLAGS, f"-I{HERE}", f"-Wl,-soname,{name}", *flags, *sources, *needs, "-o", str(output)])
    return output


def _run(arguments: Sequence[str]) -> None:
    compiler = shlex.split(os.environ.get("CC") or ("gcc" if shutil.which("gcc") else "cc"))
    try:
        done = subprocess.run([*compiler, *arguments], capture_output=True, text=True, errors="replace", check=False)  # noqa: S603 - the builder's own compiler
    except OSError as error:
        raise BuildError(f"The C compiler {shlex.join(compiler)} cannot be started: {error.strerror}.") from None
    if done.returncode:
        raise BuildError(
            f"The C compiler {shlex.join(compiler)} failed:\n{(done.stdout + done.stderr).strip()[-4000:]}"
        )


def main() -> None:
    """Build one form, or both."""
    parser = argparse.ArgumentParser(description="Builds the gate.")
    parser.add_argument("form", choices=["local", "shim", "both"])
    parser.add_argument("output", type=Path, help="the file, or the folder for both forms of both")
    parser.add_argument("--nvml", action="store_true", help="the library in front of NVML, not that of the driver")
    parser.add_argument("--driver", default="", help=f"the real library, for the shim ({DRIVER}, {NVML})")
    parser.add_argument("--sockets", default=SOCKETS, help="the directory of the sockets, for the shim (%(default)s)")
    parser.add_argument("--flag", action="append", default=[], help="for the compiler: --flag=-fsanitize=…")
    arguments = parser.parse_args()
    try:
        if arguments.form == "both":
            print(both(arguments.output))
        elif arguments.form == "local":
            local(arguments.output, arguments.flag, nvml=arguments.nvml)
        else:
            shim(arguments.output, arguments.driver, arguments.sockets, arguments.flag, nvml=arguments.nvml)
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
