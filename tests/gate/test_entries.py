"""The one way into the driver: an entry for each of its functions, told by its address, and how it is shut."""

import re
from pathlib import Path

import pytest

from .building import GATE, Built, build_entries, build_gate, command
from .place import Place, Program

LISTED = re.findall(r"F\((\w+), (\w*), (\d+)\)", (GATE / "driver" / "functions.def").read_text())

LOOK = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
def address(symbol):
    return ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value
def look(name, version, flags=0):
    found, again = ctypes.c_void_p(), ctypes.c_void_p()
    ask = (name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), None)
    one = driver.cuGetProcAddress_v2(*ask)
    two = driver.cuGetProcAddress(name.encode(), ctypes.byref(again), version, ctypes.c_uint64(flags))
    assert (one, found.value) == (two, again.value), name
    return found.value
low, high = address("cuArray3DCreate"), address(sys.argv[1])
"""


def _said(place: Place, program: str, **env: str) -> list[str]:
    python = [str(Path("/proc/self/exe").resolve()), "-c", LOOK + program, max(name + end for name, end, _ in LISTED)]
    with Program(python, place.env() | env) as running:
        return running.lines()


def test_every_function_of_a_driver_has_an_entry(either: Place) -> None:
    """Each symbol is the gate's, and whatever a look-up by version gives is an entry of the gate as well."""
    lines = _said(
        either,
        f"""
for name, end, since in {LISTED!r}:
    if not low <= address(name + end) <= high: print("symbol", name + end)
    found = look(name, int(since), 2 if end.endswith(("_ptsz", "_ptds")) else 1)
    if not low <= (found or 0) <= high: print("look-up", name + end)
""",
    )
    assert lines == []


MORE = """
int cuLaunchKernel_v2(int one, int two, int three) { return one * 100 + two * 10 + three; }
int cuOfTomorrow(double one, int two, double three) { return (int)(one * 100) + two * 10 + (int)three; }
"""


@pytest.fixture
def tomorrow(built: Built, short: Path) -> Place:
    """A driver with a newer form of a gated function, with other arguments, and with a function that is in no list."""
    (short / "more.c").write_text(MORE.replace("int cu", '__attribute__((visibility("default"))) int cu'))
    (short / "more.def").write_text("F(cuLaunchKernel, _v2, 14000) F(cuOfTomorrow, , 14000)\n")
    command(
        "sh", GATE / "standin" / "build.sh", short / "driver", f'-DSTANDIN_MORE="{short}/more.def"', short / "more.c"
    )
    build_gate(short / "gate", short / "driver" / "libcuda.so.1")
    return Place(built, short)


def test_a_form_to_come_is_called_with_its_own_arguments(tomorrow: Place) -> None:
    """By a look-up of its version it falls through; older ones, and the same by its symbol, are what they were."""
    lines = _said(
        tomorrow,
        """
made = ctypes.CFUNCTYPE
print(made(ctypes.c_int, *[ctypes.c_int] * 3)(look("cuLaunchKernel", 14000))(1, 2, 3))
double = ctypes.c_double
tell = made(ctypes.c_int, double, ctypes.c_int, double)(look("cuOfTomorrow", 14000))
print(tell(1.0, 2, 3.0), tell(4.0, 5, 6.0))
print(look("cuLaunchKernel", 13000) == address("cuLaunchKernel"))
print(look("cuLaunchKernel", 13000, 2) == address("cuLaunchKernel_ptsz"))
print(look("cuOfTomorrow", 14000) == look("cuOfTomorrow", 15000), look("cuLaunchKernel", 14000) > high)
""",
        LD_LIBRARY_PATH=str(tomorrow.folder / "gate"),
    )
    assert lines == ["123", "123 456", "True", "True", "True True"]


def test_what_this_driver_does_not_have_says_so(place: Place, short: Path) -> None:
    """A look-up does not find it, and the symbol answers that it is not supported."""
    (short / "old.c").write_text(
        "int cuGetProcAddress_v2(const char *n, void **f, int v, long g, int *s) { *f = 0; return 500; }\n"
        "int cuGetProcAddress(const char *n, void **f, int v, long g) { *f = 0; return 500; }\n"
    )
    (short / "old").mkdir()
    command("gcc", "-w", "-shared", "-Wl,-soname,libcuda.so.1", short / "old.c", "-o", short / "old" / "libcuda.so.1")
    build_gate(short / "older", short / "old" / "libcuda.so.1")
    lines = _said(
        place,
        'print(look("cuLaunchKernel", 4000), driver.cuDeviceGetCount(None), driver.cuGraphLaunch(None, None))',
        LD_LIBRARY_PATH=str(short / "older"),
    )
    assert lines == ["None 801 801"]


@pytest.fixture(scope="session")
def entries(built: Built) -> list[str]:
    """A program with the gate in it: how it is started."""
    return [str(build_entries(built.program("entries"), built.driver))]


def test_shut_nobody_enters(entries: list[str]) -> None:
    """Threads that call without end are held until it is opened, each time; none was let in after that was said."""
    with Program([*entries, "block", "100"], {}) as program:
        assert program.lines() == ["refused 0 wrong 0 moved 100"]


def test_no_thread_stands_between_the_look_and_the_jump(entries: list[str]) -> None:
    """Stopped at any instruction of an entry while it is shut, a thread is held, and let in once it is open."""
    with Program([*entries, "step"], {}) as program:
        *inside, entered = program.lines()[0].split()
    assert inside
    assert set(inside) == {"shi"}  # it was shut, the thread was held, and inside at the end
    assert entered == "s-i"  # one instruction further it is in the driver already
