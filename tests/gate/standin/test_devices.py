"""The simulated GPUs, and the reports of invalid settings."""

import pytest

from tests.gate.standin.conftest import FIRST, SECOND, Machine

LIST = """
import ctypes, uuid
from tests.gate.standin.driver import *
code = raw("cuInit", 0)
count = ctypes.c_int()
print(code, *([raw("cuDeviceGetCount", ctypes.byref(count))] if not code else []))
for device in range(count.value):
    number, bytes_ = ctypes.create_string_buffer(16), Size()
    call("cuDeviceGetUuid_v2", number, device)
    call("cuDeviceTotalMem_v2", ctypes.byref(bytes_), device)
    print(f"GPU-{uuid.UUID(bytes=number.raw)}", bytes_.value >> 20)
"""


def test_gpus_are_those_of_the_settings(machine: Machine) -> None:
    """Their UUIDs and their memory come in that order."""
    assert machine.run(LIST).splitlines() == ["0 0", f"{FIRST} 64", f"{SECOND} 32"]


def test_default_is_one_gpu(machine: Machine) -> None:
    """It has a UUID of its own and 16 GiB."""
    lines = machine.run(f"import os\ndel os.environ['JUPYTER_GPU_STANDIN_GPUS']\n{LIST}").splitlines()
    assert lines == ["0 0", "GPU-00000000-0000-4000-8000-000000000000 16384"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1", [SECOND]),
        ("1,0", [SECOND, FIRST]),
        (SECOND, [SECOND]),
        (f"{SECOND[:9]},{FIRST}", [SECOND, FIRST]),
        ("0,7,1", [FIRST]),
        ("0,GPU-9,1", [FIRST]),
        ("", None),
        ("-1", None),
    ],
)
def test_visible_devices_select_gpus(machine: Machine, visible: str, expected: list[str] | None) -> None:
    """As in a real driver: indices or beginnings of UUIDs, up to the first that does not exist."""
    lines = machine.run(f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = {visible!r}\n{LIST}").splitlines()
    assert lines[0] == ("100" if expected is None else "0 0")
    assert [line.split()[0] for line in lines[1:]] == (expected or [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPUS", "GPU-1"),
        ("GPUS", f"{FIRST}:many"),
        ("GPUS", f"{FIRST}:0"),
        ("GPUS", ",".join([FIRST] * 17)),
        ("US", "-1"),
        ("US", "5 minutes"),
        ("LOG", "1e6"),
        ("VERSION", "13.0"),
    ],
)
def test_invalid_settings_leave_no_gpu(machine: Machine, name: str, value: str) -> None:
    """There is no GPU rather than a wrong one, and a line names the setting."""
    with machine.start(LIST, None, **{name: value}) as program:
        out, error = program.communicate(timeout=60)
    assert out == "999\n"
    assert f"JUPYTER_GPU_STANDIN_{name} is {value}:" in error


def test_missing_device_is_looked_for_again(machine: Machine) -> None:
    """As in a real driver, the next cuInit finds a GPU that came later."""
    out = machine.run(
        """
import os
gpus = os.environ.pop("JUPYTER_GPU_STANDIN_GPUS")
from tests.gate.standin.driver import *
os.environ["JUPYTER_GPU_STANDIN_GPUS"] = ""
print(raw("cuInit", 0))
os.environ["JUPYTER_GPU_STANDIN_GPUS"] = gpus
print(raw("cuInit", 0))
"""
    )
    assert out == "100\n0\n"


def test_each_thread_has_a_stack_of_contexts(machine: Machine) -> None:
    """Each device has a primary one."""
    out = machine.run(
        """
import ctypes, threading
from tests.gate.standin.driver import *
one = start()
two = start(1)
assert new("cuCtxGetCurrent") == two and new("cuCtxGetDevice") == 1
assert new("cuCtxPopCurrent_v2") == two and new("cuCtxGetCurrent") == one
primary = new("cuDevicePrimaryCtxRetain", 1)
assert primary == new("cuDevicePrimaryCtxRetain", 1) != two
call("cuCtxSetCurrent", primary)
seen = []
thread = threading.Thread(target=lambda: seen.append(new("cuCtxGetCurrent")))
thread.start(), thread.join()
print(seen, raw("cuDevicePrimaryCtxRelease_v2", 1), raw("cuDevicePrimaryCtxRelease_v2", 1),
      raw("cuDevicePrimaryCtxRelease_v2", 1))
"""
    )
    assert out == "[0] 0 0 201\n"
