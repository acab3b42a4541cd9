"""Builds the gate: ``build.py preload|shim OUTPUT`` (``--help`` says more). Needs a C compiler and nothing else.

Both forms come from the same files. The shim stands at the path of ``libcuda.so.1`` and needs the real file by an
absolute path; the other one is preloaded.
"""

import argparse
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PARTS = ("driver.c", "table.c", "gate.c", "lease.c", "window.c", "link.c", "memory.c", "allocate.c", "physical.c")
DRIVER = "/run/jupyter-gpu/driver/libcuda.so.1"
"""Where a pod has the real driver, beside the shim."""
SOCKETS = "/run/jupyter-gpu/shares"
FLAGS = (
    "-std=gnu11", "-O2", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
    # A function of these is in newer C libraries only, or in none of musl's.
    "-U_FORTIFY_SOURCE", "-fno-stack-protector",
    # Its own functions are meant by their names here. It stays loaded: its thread runs in it.
    "-Wl,-Bsymbolic", "-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,defs", "-Wl,--hash-style=both",
)  # fmt: skip


def preload(output: Path, flags: Sequence[str] = ()) -> Path:
    """The form for LD_PRELOAD; the variable JUPYTER_GPU_GATE names the directory of the sockets."""
    return _link(output, ["preload.c"], ["-Wl,-soname,libjupyter_gpu_gate.so", *flags])


def shim(output: Path, driver: str = DRIVER, sockets: str = SOCKETS, flags: Sequence[str] = ()) -> Path:
    """The form that stands at the path of libcuda.so.1, in front of the real one at ``driver``."""
    with tempfile.TemporaryDirectory() as folder:
        named = Path(folder) / "named.so"  # to link with: the real one need not be here
        _run(["-shared", "-nostdlib", f"-Wl,-soname,{driver}", "-x", "c", "/dev/null", "-o", str(named)])
        needs = ["-Wl,--no-as-needed", str(named), "-Wl,--as-needed"]
        return _link(output, [], ["-Wl,-soname,libcuda.so.1", f'-DGATE_DIRECTORY="{sockets}"', *flags], needs)


def _link(output: Path, more: Sequence[str], flags: Sequence[str], libraries: Sequence[str] = ()) -> Path:
    sources = [str(HERE / name) for name in (*PARTS, *more)]
    output.parent.mkdir(parents=True, exist_ok=True)
    _run([*FLAGS, *flags, *sources, *libraries, "-o", str(output)])
    return output


def _run(arguments: Sequence[str]) -> None:
    subprocess.run([os.environ.get("CC", "gcc"), *arguments], check=True)  # noqa: S603 - ours, and the compiler of who builds


def main() -> None:
    """Build one form."""
    parser = argparse.ArgumentParser(description="Builds the gate.")
    parser.add_argument("form", choices=["preload", "shim"])
    parser.add_argument("output", type=Path)
    parser.add_argument("--driver", default=DRIVER, help="the real driver, for the shim (%(default)s)")
    parser.add_argument("--sockets", default=SOCKETS, help="the directory of the sockets, for the shim (%(default)s)")
    parser.add_argument("--flag", action="append", default=[], help="for the compiler: --flag=-fsanitize=…")
    arguments = parser.parse_args()
    if arguments.form == "preload":
        preload(arguments.output, arguments.flag)
    else:
        shim(arguments.output, arguments.driver, arguments.sockets, arguments.flag)


if __name__ == "__main__":
    main()
