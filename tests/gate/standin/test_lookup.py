"""Lookup of the functions of the stand-in driver."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.gate.standin.clients import BUILD
from tests.gate.standin.conftest import Machine

LISTED = re.findall(r"F\((\w+), (\w*), (\d+), \w+\)", (BUILD.parents[1] / "driver" / "functions.def").read_text())

ASK = """
import ctypes
from tests.gate.standin.driver import *

def address(symbol):
    return ctypes.cast(getattr(library, symbol), Pointer).value

def ask(name, version, flags=0):
    found, status = Pointer(), ctypes.c_int(9)
    code = raw("cuGetProcAddress_v2", name.encode(), ctypes.byref(found), version, flags, ctypes.byref(status))
    return found.value, code, status.value
"""


def symbols(library: Path, *flags: str) -> set[str]:
    """Return the names in a library's symbol table."""
    out = subprocess.run(["nm", "-D", *flags, library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def test_every_function_is_exported(standin: Path) -> None:
    """Each listed function is a symbol, and nothing else is."""
    names = {name + suffix for name, suffix, _ in LISTED}
    assert len(names) == len(LISTED) > 600
    assert symbols(standin / "libcuda.so.1", "--defined-only") == names


def test_driver_looks_nothing_up_itself(standin: Path) -> None:
    """It would find the functions of a gate in front of it."""
    used = {name.split("@")[0] for name in symbols(standin / "libcuda.so.1", "--undefined-only")}
    assert not used & {"dlsym", "dlopen", "dlvsym", "dlmopen", "dl_iterate_phdr"}


def test_every_function_is_found(machine: Machine) -> None:
    """Each form is found by its version, with its own symbol, by both forms of the lookup."""
    out = machine.run(
        f"""{ASK}
for name, suffix, since in {LISTED!r}:
    per_thread = suffix.endswith(("_ptsz", "_ptds"))
    found, code, status = ask(name, int(since), 2 if per_thread else 1)
    again = Pointer()
    call("cuGetProcAddress", name.encode(), ctypes.byref(again), int(since), 2 if per_thread else 1)
    if (found, code, status) != (address(name + suffix), 0, 0) or again.value != found:
        print(name, suffix, since)
"""
    )
    assert out == ""


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 99999, 0, "cuCtxCreate_v4"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuLaunchKernel", 13000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 6000, 2, "cuLaunchKernel"),
        ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuGraphInstantiate", 11000, 0, "cuGraphInstantiate_v2"),
        ("cuGraphInstantiate", 12000, 0, "cuGraphInstantiateWithFlags"),
    ],
)
def test_newest_form_up_to_the_version_is_found(
    machine: Machine, name: str, version: int, flags: int, symbol: str
) -> None:
    """Programs of any age ask for it, with or without per-thread default streams."""
    out = machine.run(f"{ASK}\nprint(ask({name!r}, {version}, {flags}) == (address({symbol!r}), 0, 0))")
    assert out == "True\n"


def test_missing_function_is_reported(machine: Machine) -> None:
    """An unknown name and one newer than requested are distinguished; the first form of the lookup fails."""
    out = machine.run(
        f"""{ASK}
print(ask("cuNothing", 13000), ask("cuLaunchKernelEx", 11000))
print(raw("cuGetProcAddress", b"cuNothing", ctypes.byref(Pointer()), 13000, 0))
"""
    )
    assert out == "(None, 0, 1) (None, 0, 2)\n500\n"


def test_function_that_is_not_simulated_is_not_supported(machine: Machine) -> None:
    """A program gets the same error from a real driver that lacks it."""
    out = machine.run(f"{ASK}\ncall('cuInit', 0); print(raw('cuTexObjectCreate', None, None, None, None))")
    assert out == "801\n"


def test_nothing_works_before_initialization(machine: Machine) -> None:
    """Nothing works before cuInit, and everything afterwards."""
    out = machine.run(f"{ASK}\nprint(raw('cuDeviceGetCount', None)); call('cuInit', 0); print(raw('cuInit', 1))")
    assert out == "3\n1\n"


def test_preloaded_library_is_not_called_by_the_driver(machine: Machine, tmp_path: Path) -> None:
    """A preloaded library with the same names is called by the program, never by the driver and its lookup."""
    source = tmp_path / "gate.c"
    source.write_text("int cuDeviceGet(void) { return 77; }\nint cuGetProcAddress_v2(void) { return 78; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "gate.so", source], check=True)
    out = machine.run(
        f"""import os, subprocess, sys
program = {ASK!r} + '''
every = ctypes.CDLL(None)
call("cuInit", 0)
print(every.cuDeviceGet(0, 0), raw("cuDeviceGetByPCIBusId", ctypes.byref(ctypes.c_int()), b"0000:01:00.0"))
found, code = Pointer(), raw("cuGetProcAddress", b"cuDeviceGet", ctypes.byref(Pointer()), 2000, 0)
print(code)
'''
print(subprocess.run([sys.executable, "-c", program], env=dict(os.environ, LD_PRELOAD={str(tmp_path / "gate.so")!r}),
                     check=True, capture_output=True, text=True).stdout)
"""
    )
    assert out.split() == ["77", "0", "0"]
