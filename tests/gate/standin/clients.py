"""Unmodified programs, each in an environment of its own, installed on first use and kept.

`python -m tests.gate.standin.clients [name ...]` installs them and prints their sizes.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = ROOT / ".cache" / "clients"
BUILD = ROOT / "node_plugin" / "gate" / "standin" / "build.sh"

CLIENTS = {
    "bindings12": ("cuda-bindings==12.9.10",),
    "bindings13": ("cuda-bindings==13.5.0",),
    "numba": ("numba-cuda[cu13]==0.30.4",),
    "pycuda": ("pycuda==2026.1",),
}
BINDINGS = """
from cuda.bindings import driver

def of(result):
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values[0] if len(values) == 1 else values

of(driver.cuInit(0))
"""
"""The first lines of a program of cuda-bindings: `of` returns the values of a call, and fails if it failed."""
PYCUDA_NEEDS = ("numpy>=2,<3", "setuptools>=80", "wheel", "pytools", "platformdirs", "mako")
HEADERS = ("nvidia-cuda-runtime==13.5.37", "nvidia-cuda-profiler-api==13.5.25")

# It only launches, so nothing is optimised; its Boost.Python goes through the compiler as one file (6 s instead of 45),
# and the others two at a time, the longest first.
PYCUDA_SETTINGS = """
def parallel():
    from concurrent.futures import ThreadPoolExecutor
    from distutils.ccompiler import CCompiler
    from os.path import abspath

    def joined(sources):
        boost = [source for source in sources if "libs/python/" in source]
        with open("boost_python.cpp", "w") as file:
            file.writelines(f'#include "{{abspath(source)}}"\\n' for source in boost)
        rest = sorted((source for source in sources if source not in boost), key=lambda source: "wrap_" not in source)
        return rest[:1] + ["boost_python.cpp"] + rest[1:] if boost else rest

    def compile(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None,
                extra_postargs=None, depends=None):
        macros, objects, last, options, build = self._setup_compile(
            output_dir, macros, include_dirs, joined(sources), depends, extra_postargs)
        arguments = self._get_cc_args(options, debug, extra_preargs)
        def one(made):
            source, ending = build[made]
            self._compile(made, source, ending, arguments, last, options)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, build))
        return objects

    CCompiler.compile = compile

parallel()
del parallel
CUDA_ROOT = None
CUDA_INC_DIR = [{include!r}]
CUDADRV_LIB_DIR = [{library!r}]
CUDART_LIB_DIR = []
CUDART_LIBNAME = []
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-g0", "-w"]
"""


def python_of(name: str) -> Path:
    """Return the Python of a client's environment, which is created if it does not exist."""
    text = "\n".join((sys.version, *CLIENTS[name], *((*PYCUDA_NEEDS, *HEADERS) if name == "pycuda" else ())))
    home = CACHE / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    with _alone(name):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=False, symlinks=True)
            if name == "pycuda":
                _install_pycuda(home / "bin" / "python")
            else:
                _pip(home / "bin" / "python", "install", *CLIENTS[name])
            (home / "complete").touch()
    return home / "bin" / "python"


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Hold a lock, so that two test runs install one after the other."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str | Path) -> None:
    """Run a command; include its output in the error if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")


def _pip(python: Path, *arguments: str) -> None:
    """Run this environment's pip for another one."""
    _run(sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", python, *arguments)


def _install_pycuda(python: Path) -> None:
    """Build it against the headers of a newer CUDA and the stand-in driver, with whose symbols it is linked."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        _pip(python, "install", *PYCUDA_NEEDS)
        _pip(python, "install", "--no-deps", "--target", str(there / "headers"), *HEADERS)
        source = ("--no-deps", "--no-build-isolation", "--no-binary", "pycuda")
        _pip(python, "download", *source, "-d", folder, *CLIENTS["pycuda"])
        (archive,) = there.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(there, filter="data")
        _run(BUILD, there / "lib")
        (there / "lib" / "libcuda.so").symlink_to("libcuda.so.1")
        (include,) = (there / "headers" / "nvidia").glob("*/include")
        settings = PYCUDA_SETTINGS.format(include=str(include), library=str(there / "lib"))
        unpacked = there / archive.name.removesuffix(".tar.gz")
        (unpacked / "siteconf.py").write_text(settings)
        _pip(python, "install", "--no-deps", "--no-build-isolation", str(unpacked))


def _mebibytes(folder: Path) -> float:
    """Return the size of a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) / (1 << 20)


def main() -> None:
    """Install the named clients, or all."""
    for name in sys.argv[1:] or CLIENTS:
        start = time.monotonic()
        home = python_of(name).parents[1]
        print(f"{name}: {time.monotonic() - start:.0f} s, {_mebibytes(home):.0f} MiB")


if __name__ == "__main__":
    main()
