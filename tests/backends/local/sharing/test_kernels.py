"""Kernels of a real Jupyter server: their programs meet the gate where they open the driver, and nowhere else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gate.building import command
from tests.kernel.kernels import Kernel
from tests.kernel.servers import Server, await_, serve

SOFT = "--GpuExtension.enforcement=soft"
OPENS = """
import ctypes, os
ctypes.CDLL({name!r})
maps = open("/proc/self/maps").read()
print("lib/local/libcuda.so.1" in maps, {driver!r} in maps)
"""
RUN = """
import json, subprocess
done = subprocess.run({words!r}, capture_output=True, text=True{more})
print(json.dumps([done.returncode, done.stdout.strip(), done.stderr.strip()]))
"""
PROGRAM = """
#include <pthread.h>
#include <stdio.h>
static void *same(void *it) { return it; }
int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, same, NULL) || pthread_join(thread, NULL)) return 1;
    return puts("42") < 0;
}
"""


@pytest.fixture(scope="module")
def kernel(standin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Kernel]]:
    """Start a server with half a GPU, on a machine that has a driver; its user has a search path."""
    folder = Path("/tmp") / f"jg-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_LIBRARY_PATH", f"/nowhere:{standin}")
        patch.delenv("LD_PRELOAD", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        try:
            with serve(folder, folder / "state", SOFT, gpus=1) as server, server.kernel() as made:
                server.gpus(0.5)
                yield server, made
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run(kernel: Kernel, *words: str | Path, more: str = "") -> object:
    """Return the output and exit status of a program that the notebook starts."""
    return json.loads(kernel.run(RUN.format(words=[str(word) for word in words], more=more)).strip())


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so"])
def test_a_program_of_a_kernel_opens_the_gate_for_the_driver(
    kernel: tuple[Server, Kernel], standin: Path, name: str
) -> None:
    """Each of the driver's names leads to it, in the kernel and in what it starts; the panel sees its share."""
    server, made = kernel
    code = OPENS.format(name=name, driver=str(standin / "libcuda.so.1"))
    assert run(made, sys.executable, "-c", code) == [0, "True True", ""]
    assert made.run(code).strip() == "True True"
    folder = made.run("import os; print(os.environ['JUPYTER_GPU_GATE'])").strip()
    await_(lambda: list(Path(folder).glob("*.sock")))
    await_(lambda: server.rest("GET", "jupyter-gpu/api/v1/sample").get("shares"))


def test_search_path_of_the_user_stays_behind_the_gate(kernel: tuple[Server, Kernel], standin: Path) -> None:
    """Kernels add one folder to it, and preload nothing."""
    found = kernel[1].run("import os; print(os.environ['LD_LIBRARY_PATH'], os.environ.get('LD_PRELOAD'))").split()
    assert found[0].partition(":")[2] == f"/nowhere:{standin}"
    assert found[1] == "None"
    assert Path(found[0].partition(":")[0], "libjupyter_gpu_driver.so.1").samefile(standin / "libcuda.so.1")


@pytest.mark.parametrize("sanitizer", ["thread", "address", "undefined", "leak"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_sanitizer_works_in_a_program_without_cuda(
    kernel: tuple[Server, Kernel], tmp_path: Path, compiler: str, sanitizer: str
) -> None:
    """A sanitizer has to be the first library of the process, and look things up before others work."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (tmp_path / "p.c").write_text(PROGRAM)
    command(compiler, f"-fsanitize={sanitizer}", "-pthread", tmp_path / "p.c", "-o", tmp_path / "p")
    assert run(kernel[1], tmp_path / "p") == [0, "42", ""]


@pytest.mark.root
def test_a_program_in_another_root_says_nothing_of_it(kernel: tuple[Server, Kernel], tmp_path: Path) -> None:
    """In a chroot, or a container of a user, the gate's folder is not there."""
    program = tmp_path / "p"
    (tmp_path / "p.c").write_text(PROGRAM)
    command("gcc", "-pthread", tmp_path / "p.c", "-o", program)
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.splitlines():
        library = next((Path(word) for word in line.split() if word.startswith("/")), None)
        if library:
            (tmp_path / str(library.parent).lstrip("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(library.resolve(), tmp_path / str(library).lstrip("/"))
    assert run(kernel[1], shutil.which("chroot") or "/usr/sbin/chroot", tmp_path, "/p") == [0, "42", ""]


def test_a_program_with_an_empty_environment_runs(kernel: tuple[Server, Kernel]) -> None:
    """It has no gate, and says nothing of one."""
    assert run(kernel[1], "env", "-i", "/bin/echo", "42") == [0, "42", ""]


def test_where_no_driver_is_kernels_have_no_gate(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without GPUs the environment says nothing of a gate."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    with serve(short_tmp, short_tmp / "state", SOFT, gpus=1) as server, server.kernel() as made:
        server.gpus(0.5)
        assert made.run("import os; print({'LD_PRELOAD', 'LD_LIBRARY_PATH'} & os.environ.keys())").strip() == "set()"
