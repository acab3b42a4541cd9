"""The gate on aarch64: its library, calls through its entries, and that no thread is between check and jump."""

import re
import subprocess
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask

from .arm import CC, MACHINE, PROCESS, TREE, Arm
from .building import build_nvml, build_standin_nvml, command
from .place import Place, Program

pytestmark = pytest.mark.skipif(not PROCESS, reason="needs QEMU and a compiler for aarch64: run scripts/test")


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Arm:
    """Build everything for aarch64."""
    return Arm(tmp_path_factory.mktemp("arm"))


def test_library_needs_no_symbol_newer_than_the_oldest_images(arm: Arm) -> None:
    """Restartable sequences come from a newer C library, but the gate loads without it."""
    table = subprocess.check_output(["aarch64-linux-gnu-objdump", "-T", arm.gate / "libcuda.so.1"], text=True)
    assert set(re.findall(r"GLIBC_([0-9.]+)", table)) == {"2.17"}


def test_programs_are_gated(arm: Arm, place: Place) -> None:
    """Each launch passes an entry with its arguments intact, and asks for a lease first."""
    env = place.env()
    del env["LD_LIBRARY_PATH"]
    program = arm.process(arm.client, "dlsym", "kernels:3:10", "sync", LD_LIBRARY_PATH=str(arm.gate))
    with place.stub() as stub, Program(program, env) as running:
        connection = stub.accept()
        connection.expect(Ask)
        assert place.launches() == 0
        connection.grant(FOREVER)
        assert running.lines() == ["ready", "done"]
    assert place.launches() == 3


NVML = """
#include <stdio.h>
int nvmlInit_v2(void), nvmlDeviceGetCount_v2(unsigned *), nvmlDeviceGetName(void *), nvmlShutdown(void);
int main(void) {
    unsigned count = 7;
    int start = nvmlInit_v2(), asked = nvmlDeviceGetCount_v2(&count), none = nvmlDeviceGetName(NULL);
    printf("%d %d %u %d ", start, asked, count, none);
    printf("%d ", nvmlShutdown());
    printf("%d\\n", nvmlShutdown());
}
"""


def test_nvml_is_called_by_its_entries(tmp_path: Path) -> None:
    """With the arguments intact; a program is linked with it."""
    front = build_nvml(tmp_path / "front", build_standin_nvml(tmp_path / "real", CC), CC=CC)
    (tmp_path / "list").write_text(f"GPU-0 {tmp_path}/list\n")
    (tmp_path / "program.c").write_text(NVML)
    command(CC, tmp_path / "program.c", "-o", tmp_path / "program", "-L", front, "-l:libnvidia-ml.so.1",
            "-Wl,--allow-shlib-undefined")  # fmt: skip
    words = ["qemu-aarch64", "-L", str(TREE), "-E", f"LD_LIBRARY_PATH={front}", str(tmp_path / "program")]
    with Program(words, {"STANDIN_NVML": str(tmp_path / "list")}) as program:
        assert program.lines() == ["0 0 1 13 0 1"]


def test_thread_without_restartable_sequences_makes_blocking_fail(arm: Arm) -> None:
    """If the C library has not registered a thread, blocking reports failure, and no call waits."""
    with Program(arm.process(arm.entries, "block", "3"), {}) as program:
        assert re.fullmatch(r"refused 3 wrong \d+ moved 3", program.lines()[0])


@pytest.mark.skipif(not MACHINE, reason="needs a kernel for aarch64: run scripts/test")
def test_thread_is_never_between_check_and_jump(arm: Arm) -> None:
    """A thread stopped at any instruction while calls are blocked waits; an unregistered one makes blocking fail.

    Calls that give something back while the process is parked are made afterwards, with their arguments.
    """
    step, *rest = arm.machine(
        "/entries step", "/entries block 20", "/entries alone", "GLIBC_TUNABLES=glibc.pthread.rseq=0 /entries alone",
        "JUPYTER_GPU_STANDIN=/ JUPYTER_GPU_STANDIN_PARK_BASE=0 /parked back",
    )  # fmt: skip
    *inside, entered = step.split()
    assert len(inside) > 10
    assert set(inside) == {"shi"}  # calls were blocked, the thread waited, and it entered in the end
    assert entered == "s-i"
    assert rest[:3] == ["refused 0 wrong 0 moved 20", "shut, refused", "refused, refused"]
    assert rest[3:] == ["0 0 0 0 0 0 0 0", "64 0"]
