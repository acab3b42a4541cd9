"""The only way into the driver: an entry for each function, identified by address, and how calls are blocked."""

import re
from pathlib import Path

import pytest

from .building import GATE, Built, build_entries, build_gate, command
from .place import Place, Program

FUNCTIONS = (GATE / "driver" / "functions.def").read_text()
LISTED = re.findall(r"F\((\w+), (\w*), (\d+), \w+\)", FUNCTIONS)
WORK = {name + end for name, end in re.findall(r"F\((\w+), (\w*), \d+, WORK\)", FUNCTIONS)}

LOOKUP = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
def address(symbol):
    return ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value
def lookup(name, version, flags=0):
    found, again = ctypes.c_void_p(), ctypes.c_void_p()
    ask = (name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), None)
    one = driver.cuGetProcAddress_v2(*ask)
    two = driver.cuGetProcAddress(name.encode(), ctypes.byref(again), version, ctypes.c_uint64(flags))
    assert (one, found.value) == (two, again.value), name
    return found.value
low, high = address("cuArray3DCreate"), address(sys.argv[1])
"""


def _output(place: Place, program: str, **env: str) -> list[str]:
    python = [str(Path("/proc/self/exe").resolve()), "-c", LOOKUP + program, max(name + end for name, end, _ in LISTED)]
    with Program(python, place.env() | env) as running:
        return running.lines()


def test_every_function_has_an_entry(either: Place) -> None:
    """Each symbol, and whatever a lookup by version returns, is an entry of the gate."""
    lines = _output(
        either,
        f"""
for name, end, since in {LISTED!r}:
    if not low <= address(name + end) <= high: print("symbol", name + end)
    found = lookup(name, int(since), 2 if end.endswith(("_ptsz", "_ptds")) else 1)
    if not low <= (found or 0) <= high: print("lookup", name + end)
""",
    )
    assert lines == []


MORE = """
int cuLaunchKernel_v2(int one, int two, int three) { return one * 100 + two * 10 + three; }
int cuOfTomorrow(double one, int two, double three) { return (int)(one * 100) + two * 10 + (int)three; }
"""


@pytest.fixture
def tomorrow(built: Built, short: Path) -> Place:
    """Build a driver with a newer form of a gated function, with other arguments, and with an unlisted function."""
    (short / "more.c").write_text(MORE.replace("int cu", '__attribute__((visibility("default"))) int cu'))
    (short / "more.def").write_text("F(cuLaunchKernel, _v2, 14000, WORK) F(cuOfTomorrow, , 14000, WORK)\n")
    command(
        "sh", GATE / "standin" / "build.sh", short / "driver", f'-DSTANDIN_MORE="{short}/more.def"', short / "more.c"
    )
    build_gate(short / "gate", short / "driver" / "libcuda.so.1")
    return Place(built, short)


def test_newer_form_gets_its_own_arguments(tomorrow: Place) -> None:
    """A lookup of the newer version bypasses the gate; older versions and the symbol are as before."""
    lines = _output(
        tomorrow,
        """
made = ctypes.CFUNCTYPE
print(made(ctypes.c_int, *[ctypes.c_int] * 3)(lookup("cuLaunchKernel", 14000))(1, 2, 3))
double = ctypes.c_double
tell = made(ctypes.c_int, double, ctypes.c_int, double)(lookup("cuOfTomorrow", 14000))
print(tell(1.0, 2, 3.0), tell(4.0, 5, 6.0))
print(lookup("cuLaunchKernel", 13000) == address("cuLaunchKernel"))
print(lookup("cuLaunchKernel", 13000, 2) == address("cuLaunchKernel_ptsz"))
print(lookup("cuOfTomorrow", 14000) == lookup("cuOfTomorrow", 15000), lookup("cuLaunchKernel", 14000) > high)
""",
        LD_LIBRARY_PATH=str(tomorrow.folder / "gate"),
    )
    assert lines == ["123", "123 456", "True", "True", "True True"]


def test_function_that_the_driver_lacks_is_not_supported(place: Place, short: Path) -> None:
    """A lookup does not find it, and the symbol returns "not supported"."""
    (short / "old.c").write_text(
        "int cuGetProcAddress_v2(const char *n, void **f, int v, long g, int *s) { *f = 0; return 500; }\n"
        "int cuGetProcAddress(const char *n, void **f, int v, long g) { *f = 0; return 500; }\n"
    )
    (short / "old").mkdir()
    command("gcc", "-w", "-shared", "-Wl,-soname,libcuda.so.1", short / "old.c", "-o", short / "old" / "libcuda.so.1")
    build_gate(short / "older", short / "old" / "libcuda.so.1")
    lines = _output(
        place,
        'print(lookup("cuLaunchKernel", 4000), driver.cuDeviceGetCount(None), driver.cuGraphLaunch(None, None))',
        LD_LIBRARY_PATH=str(short / "older"),
    )
    assert lines == ["None 801 801"]


@pytest.fixture(scope="session")
def entries(built: Built) -> list[str]:
    """Return the command of a program with the gate in it."""
    return [str(build_entries(built.program("entries"), built.driver))]


def test_first_use_of_armed_entries_is_noticed(entries: list[str]) -> None:
    """Those of all functions of that class, and no others; also after calls were blocked meanwhile."""
    with Program([*entries, "armed"], {}) as program:
        (before, *closed), answers = (line.split() for line in program.lines())
    assert before == "1"  # what was before the first arming is not known
    assert set(closed) == WORK
    others, use, none, unlisted, blocked, later = answers
    assert (others, use, none, unlisted, blocked, later) == ("0", "1", "0", "1", "0", "1")


def test_use_is_never_missed(entries: list[str]) -> None:
    """Threads call all the time: each time that one has called after the arming, it was noticed."""
    with Program([*entries, "missed", "200"], {}) as program:
        assert program.lines() == ["refused 0 missed 0"]


def test_blocked_calls_wait(entries: list[str]) -> None:
    """Threads that call all the time wait while calls are blocked, and none enters meanwhile."""
    with Program([*entries, "block", "100"], {}) as program:
        assert program.lines() == ["refused 0 wrong 0 moved 100"]


def test_thread_is_never_between_check_and_jump(entries: list[str]) -> None:
    """A thread stopped at any instruction of an entry waits while calls are blocked, and enters when they are
    unblocked.
    """
    with Program([*entries, "step"], {}) as program:
        *inside, entered = program.lines()[0].split()
    assert inside
    assert set(inside) == {"shi"}  # calls were blocked, the thread waited, and it entered in the end
    assert entered == "s-i"  # after one more instruction it is in the driver
