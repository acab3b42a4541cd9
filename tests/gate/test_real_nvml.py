"""On a real GPU: NVML, its tools and PyTorch through the library before NVML, and while the process is parked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.sharing import front
from jupyter_gpu.common.rules import search_path

from .building import build_gate, build_nvml
from .place import Program
from .test_nvml import LISTED
from .test_park import PARKS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]

ASKS = """
import json, pynvml
pynvml.nvmlInit()
found = [pynvml.nvmlDeviceGetHandleByIndex(one) for one in range(pynvml.nvmlDeviceGetCount())]
answers = [[pynvml.nvmlDeviceGetUUID(one), pynvml.nvmlDeviceGetMemoryInfo(one).total] for one in found]
pynvml.nvmlShutdown()
print(json.dumps([answers, pynvml.__name__]))
"""
PARKED = f"""{PARKS}
import torch
nvml = ctypes.CDLL("libnvidia-ml.so.1")
there = torch.arange(1 << 20, device="cuda")
number = ctypes.c_uint()
ask = lambda: nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)) or "has"
names = lambda: [os.path.realpath(f"/proc/self/fd/{{one}}") for one in os.listdir("/proc/self/fd")]
opened = lambda: sum(one.startswith("/dev/nvidia") for one in names())
say(nvml.nvmlInit_v2(), ask(), opened() > 0)
say(park(), opened())
begin = time.monotonic()
say(ask(), torch.cuda.device_count() > 0, time.monotonic() - begin < 5)
say(back(), ask(), torch.cuda.device_count() > 0, opened() > 0)
say(int(there.sum()) == sum(range(1 << 20)))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the search path of programs with the gate and the library before NVML."""
    found = front._ask(os.environ.get("LD_LIBRARY_PATH", ""))
    assert found
    if found.nvml is None:
        pytest.skip("not run: needs driver 580 or newer")
    folder = tmp_path_factory.mktemp("real")
    folders = build_nvml(folder / "nvml", found.nvml), build_gate(folder / "gate", found.cuda)
    return search_path.joined(":".join(map(str, folders)), os.environ.get("LD_LIBRARY_PATH"))


def test_list_has_no_function_that_nvml_lacks(path: str) -> None:
    """A program would find it there and get an error, where NVML alone would tell that it has none."""
    (real,) = Path(path.partition(":")[0]).glob("libjupyter_gpu_nvml.so.1")
    table = subprocess.check_output(["nm", "-D", "--defined-only", real.resolve()], text=True).split()
    assert set(LISTED) <= set(table)


def test_programs_get_the_same_answers(path: str) -> None:
    """Those of pynvml and of nvidia-smi, which also calls functions that no header names."""
    for words in ([sys.executable, "-c", ASKS], ["nvidia-smi", "-L"]):
        alone, through = (
            subprocess.run(words, env={**os.environ, **more}, capture_output=True, text=True, check=True).stdout
            for more in ({}, {"LD_LIBRARY_PATH": path})
        )
        assert through == alone
    assert json.loads(Program([sys.executable, "-c", ASKS], {"LD_LIBRARY_PATH": path}).lines()[-1])[0]


@pytest.mark.torch
def test_nvml_is_answered_while_pytorch_is_parked(path: str) -> None:
    """Nothing of the GPU stays open, nothing waits, and afterwards all is as before."""
    env = {"LD_LIBRARY_PATH": path, "JUPYTER_GPU_GATE": ""}
    with Program([os.environ["JUPYTER_GPU_TEST_TORCH"], "-c", PARKED], env) as program:
        assert program.lines() == [
            "0 has True",
            "PARKED CHECKPOINT 0 0",
            "10 True True",
            "RUNNING UNLOCK 0 has True True",
            "True",
        ]
