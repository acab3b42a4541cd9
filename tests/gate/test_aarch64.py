"""The gate on aarch64: its library, what passes through its entries, and that no thread stands within them."""

import re
import subprocess

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask

from .arm import MACHINE, PROCESS, Arm
from .place import Place, Program

pytestmark = pytest.mark.skipif(not PROCESS, reason="needs QEMU and a compiler for aarch64: run scripts/test")


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Arm:
    """Built once."""
    return Arm(tmp_path_factory.mktemp("arm"))


def test_no_symbol_is_newer_than_the_oldest_images(arm: Arm) -> None:
    """Restartable sequences come from a newer C library, which need not be there."""
    table = subprocess.check_output(["aarch64-linux-gnu-objdump", "-T", arm.gate / "libcuda.so.1"], text=True)
    assert set(re.findall(r"GLIBC_([0-9.]+)", table)) == {"2.17"}


def test_programs_are_gated(arm: Arm, place: Place) -> None:
    """Each launch goes through an entry, with its arguments, and asks first."""
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


def test_a_thread_that_the_kernel_cannot_send_back_is_not_shut_out(arm: Arm) -> None:
    """Its C library has not told the kernel of it: nobody says that the way is shut, and nobody waits."""
    with Program(arm.process(arm.entries, "block", "3"), {}) as program:
        assert re.fullmatch(r"refused 3 wrong \d+ moved 3", program.lines()[0])


@pytest.mark.skipif(not MACHINE, reason="needs a kernel for aarch64: run scripts/test")
def test_no_thread_stands_between_the_look_and_the_jump(arm: Arm) -> None:
    """Stopped at any instruction while it is shut, a thread is held; one that cannot be makes it impossible to say."""
    step, *rest = arm.machine(
        "/entries step", "/entries block 20", "/entries alone", "GLIBC_TUNABLES=glibc.pthread.rseq=0 /entries alone"
    )
    *inside, entered = step.split()
    assert len(inside) > 10
    assert set(inside) == {"shi"}  # it was shut, the thread was held, and inside at the end
    assert entered == "s-i"
    assert rest == ["refused 0 wrong 0 moved 20", "shut, refused", "refused, refused"]
