"""A program asks for a lease first, however it finds the driver and whichever function it launches with."""

from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask

from .building import Built, command
from .place import Place, Program

WAYS = ("link", "dlsym", "default", "deepbind", "dlmopen", "address1", "address2", "address-itself")
LAUNCHES = (
    "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz", "cuLaunchCooperativeKernelMultiDevice", "cuGraphLaunch", "cuGraphLaunch_ptsz",
    "cuLaunch", "cuLaunchGrid", "cuLaunchGridAsync",
)  # fmt: skip


def _asks_first(place: Place, *arguments: str, launches: int = 1) -> None:
    with place.stub() as stub, place.run(*arguments) as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert place.sums().launches == 0
        connection.grant(FOREVER)
        assert program.lines()[-1] == "done"
        assert place.sums().launches == launches


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_the_driver_is_gated(either: Place, way: str) -> None:
    """In both forms of the gate, nothing reaches the GPU before the lease."""
    _asks_first(either, way, "kernels:3:10", "sync", launches=3)


@pytest.mark.parametrize("way", ["link", "dlsym", "address2"])
@pytest.mark.parametrize("function", LAUNCHES)
def test_each_function_that_launches_is_gated(place: Place, function: str, way: str) -> None:
    """By its symbol, linked or looked up, and by name and version."""
    _asks_first(place, way, f"by:{function}:10", "sync")


LINKED = """
#include <stddef.h>
int cuInit(), cuDevicePrimaryCtxRetain(), cuCtxSetCurrent(), cuModuleLoadData();
int cuModuleGetFunction(), cuLaunchKernel();
int launch(void) {
    void *context, *module, *function;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
    if (cuModuleLoadData(&module, "x") || cuModuleGetFunction(&function, module, "k")) return 2;
    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}
"""


def test_library_opened_with_deepbind_is_gated(either: Place) -> None:
    """It is linked with the driver and opened with RTLD_DEEPBIND, as those of MATLAB and Julia are."""
    source, library = either.folder / "linked.c", either.folder / "linked.so"
    source.write_text(LINKED)
    command("gcc", "-shared", "-fPIC", source, "-o", library, "-L", either.built.driver, "-l:libcuda.so.1")
    program = (
        f"import ctypes, os; one = ctypes.CDLL({str(library)!r}, os.RTLD_NOW | os.RTLD_DEEPBIND); print(one.launch())"
    )
    python = [str(Path("/proc/self/exe").resolve()), "-c", program]
    with either.stub() as stub, Program(python, either.env()) as running:
        connection = stub.accept()
        connection.expect(Ask)
        assert either.launches() == 0
        connection.grant(FOREVER)
        assert running.lines() == ["0"]


PROFILER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
static int seen;
int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned s, void *t,
                   void **p, void **e) {
    int (*next)() = (int (*)())dlsym(RTLD_NEXT, "cuLaunchKernel");
    seen++;
    return next(f, x, y, z, a, b, c, s, t, p, e);
}
__attribute__((destructor)) static void say(void) { if (seen) printf("seen %d\\n", seen); }
"""


@pytest.mark.parametrize("way", ["link", "default"])
def test_preloaded_library_sees_the_calls(either: Place, way: str) -> None:
    """A profiler before the driver is called, and what it calls is gated."""
    source, library = either.folder / "profiler.c", either.folder / "profiler.so"
    source.write_text(PROFILER)
    command("gcc", "-w", "-shared", "-fPIC", source, "-o", library, "-ldl")
    with either.stub() as stub, either.run(way, "kernels:3:10", "sync", LD_PRELOAD=str(library)) as program:
        connection = stub.accept()
        connection.expect(Ask)
        assert either.launches() == 0
        connection.grant(FOREVER)
        assert program.lines()[-1] == "seen 3"
    assert either.launches() == 3


def test_gate_without_a_directory_lets_everything_pass(place: Place) -> None:
    """Programs run as usual if no share is in use."""
    with place.run("dlsym", "kernels:3:10", "alloc:1024", "sync", JUPYTER_GPU_GATE="") as program:
        assert program.lines()[-1] == "done"
    assert place.sums().launches == 3


def test_environment_of_another_machine_gates_nothing(place: Place) -> None:
    """Jobs carry along the variables of their terminal, and shells those from before the last boot."""
    with place.run("dlsym", "kernels:3:10", "sync", JUPYTER_GPU_GATE_BOOT="0" * 36) as program:
        assert program.lines()[-1] == "done"
    assert place.sums().launches == 3
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with place.stub() as stub, place.run("dlsym", "kernels:3:10", "sync", JUPYTER_GPU_GATE_BOOT=here) as program:
        stub.accept().expect(Ask)
        assert place.sums().launches == 3
        program.kill()


def test_no_variable_disables_the_shim(built: Built, short: Path) -> None:
    """Its directory is built in, and it stands at the driver's path."""
    place = Place(built, short, "shim")
    with (
        place.stub() as stub,
        place.run("dlsym", "kernels:1:10", JUPYTER_GPU_GATE="/nowhere") as program,
    ):
        stub.accept().expect(Ask)
        assert place.sums().launches == 0
        program.kill()
