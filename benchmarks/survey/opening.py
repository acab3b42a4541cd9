"""When programs find and open GPUs: at an import, at a first question, again after the first look found none."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_int
from typing import Any

from . import process
from .answers import Case, ask, say
from .devices import Door, nodes_away
from .driver import Driver

_USES: Mapping[str, str] = {
    "torch": "", "torchvision": "", "triton": "", "jax": "", "flax": "", "cupy": "", "numba": "",
    "numba.cuda": "", "cuda.bindings.driver": "", "cuda.core": "", "onnxruntime": "", "transformers": "",
    "lightning": "", "accelerate": "", "peft": "", "timm": "", "sentence_transformers": "", "torch_geometric": "",
    "torchmetrics": "", "pynvml": "", "botorch": "", "torchaudio": "",
    "torch.cuda.is_available": "import torch; torch.cuda.is_available()",
    "torch.cuda.is_available by NVML": "import os; os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'\n"
    "import torch; torch.cuda.is_available()",
    "torch.cuda.device_count": "import torch; torch.cuda.device_count()",
    "torch.cuda.manual_seed_all": "import torch; torch.manual_seed(1)",
    "torch.cuda.amp": "import torch; torch.amp.GradScaler('cuda')",
    "torch pin_memory": "import torch; torch.ones(8).pin_memory()",
    "torch.compile on the CPU": "import torch; torch.compile(lambda a: a + 1)(torch.ones(8))",
    "torch.accelerator": "import torch; torch.accelerator.is_available()",
    "jax.devices": "import jax; jax.devices()",
    "cupy.is_available": "import cupy; cupy.is_available()",
    "numba.cuda.is_available": "import numba.cuda; numba.cuda.is_available()",
    "numba.cuda.gpus": "import numba.cuda; len(numba.cuda.gpus)",
    "numba.jit on the CPU": "import numba; numba.njit(lambda a: a + 1)(1)",
    "onnxruntime providers": "import onnxruntime; onnxruntime.get_available_providers()",
    "accelerate.Accelerator": "import accelerate; accelerate.Accelerator()",
    "lightning.Trainer": "import lightning; lightning.Trainer(logger=False, enable_checkpointing=False)",
    "triton driver": "import triton; triton.runtime.driver.active.get_current_target()",
    "pynvml.nvmlInit": "import pynvml; pynvml.nvmlInit()",
    "cuInit": "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)",
    "cuInit, a context": "from benchmarks.survey.driver import Driver; Driver().start()",
}  # fmt: skip
_LOOK = """
import json, os
from benchmarks.survey import process
import ctypes
loaded = process.libraries("libcuda.so", "libcudart", "libnvidia-ml", "libcublas.", "libnvrtc.")
count = ctypes.c_int(-1)
code = ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) if "libcuda.so" in loaded else None
print("LOOK" + json.dumps({"loaded": loaded, "cuDeviceGetCount": code, **process.holds(), **process.memory()}))
"""


def _used(name: str) -> dict[str, Any]:
    code = _USES[name].replace("\\n", "\n") or f"import {name}"
    done = subprocess.run(
        [sys.executable, "-c", code + _LOOK], check=False, capture_output=True, text=True, timeout=100
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("LOOK")]
    return json.loads(lines[-1][4:]) if lines else {"error": done.stderr.strip().splitlines()[-1:]}


def imports() -> object:
    """Import libraries, or ask them something, each in a process of its own."""

    def one(name: str) -> None:
        try:
            say(use=name, **_used(name))
        except subprocess.TimeoutExpired:
            say(use=name, error="not within 100 s")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, _USES))
    return len(_USES)


@contextlib.contextmanager
def _closed() -> Any:
    """Close the GPUs to this process; yields how to open them. Without rules of a kernel, by renaming their nodes."""
    try:
        door = Door()
    except Exception as error:
        say(rules=f"{type(error).__name__}: {error}"[:300])
        with contextlib.ExitStack() as stack:
            stack.enter_context(nodes_away())
            yield stack.close
        return
    yield door.open


def retry() -> object:
    """Call cuInit and NVML while the GPU is closed, twice, and after it was opened; and cudart, where one is there."""
    with _closed() as open_gpus:
        driver, count = Driver(), c_int(-1)
        nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")

        def look() -> dict[str, object]:
            codes = [driver.call("cuInit", 0), driver.call("cuDeviceGetCount", byref(count)), count.value]
            management = [nvml.nvmlInit_v2(), nvml.nvmlDeviceGetCount_v2(byref(count)), count.value]
            return {"cuInit, count": codes, "nvmlInit, count": management, **process.holds()}

        closed = [look(), look()]
        open_gpus()
        return {"closed": closed, "opened": [look(), look()]}


def torch_retry(check: str, first: str) -> object:
    """Ask PyTorch while the GPU is closed and after it was opened. ``check``: what is set for its check by NVML."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = check
    with _closed() as open_gpus:
        torch = importlib.import_module("torch")
        driver = Driver()

        def tried(work: Callable[[], object]) -> object:
            try:
                return work()
            except Exception as error:
                return f"{type(error).__name__}: {error}"[:150]

        asked: dict[str, Callable[[], object]] = {
            "is_available": torch.cuda.is_available,
            "device_count": torch.cuda.device_count,
            "use": lambda: torch.ones(4, device="cuda").sum().item(),
        }
        closed = {name: tried(asked[name]) for name in first.split()}
        closed["cuInit"] = driver.call("cuInit", 0)
        open_gpus()
        opened = {"cuInit": driver.call("cuInit", 0)}
        again = {name: tried(work) for name, work in asked.items()}
        return {"closed": closed, "opened": {**opened, **again}, **process.holds()}


def nvml_again() -> object:
    """Shut NVML down as often as it was initialised without GPUs, once GPUs are open: whether it finds them then."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    with _closed() as open_gpus:
        torch = importlib.import_module("torch")
        nvml: Any = ctypes.CDLL("libnvidia-ml.so.1")
        closed = [torch.cuda.is_available(), torch.cuda.device_count()]
        open_gpus()
        opened = [torch.cuda.is_available(), torch.cuda.device_count()]
        shut = 0
        while shut < 100 and nvml.nvmlShutdown() == 0:
            shut += 1
        again = [torch.cuda.is_available(), torch.cuda.device_count(), torch.ones(4, device="cuda").sum().item()]
        return {"closed": closed, "opened": opened, "shut down": shut, "again": again}


def jax_retry() -> object:
    """Ask JAX while the GPU is closed and after it was opened."""
    with _closed() as open_gpus:
        jax = importlib.import_module("jax")
        closed = str(jax.devices())
        open_gpus()
        try:
            opened = str(jax.devices("cuda"))
        except RuntimeError as error:
            opened = str(error)[:150]
        return {"closed": closed, "opened": opened}


CASES: dict[str, Case] = {
    "retry": retry,
    "torch, NVML check": functools.partial(torch_retry, "1", "is_available device_count"),
    "torch, no NVML check": functools.partial(torch_retry, "0", "is_available device_count"),
    "torch, NVML check, count only": functools.partial(torch_retry, "1", "device_count"),
    "torch, NVML check, used": functools.partial(torch_retry, "1", "is_available use"),
    "NVML again": nvml_again,
    "jax": jax_retry,
    "imports": imports,
}

if __name__ == "__main__":
    ask(CASES, apart=__spec__.name)
