"""A call that fails once: how frameworks bear the codes with which a wait for a parked GPU could end after Ctrl-C.

The next launch, copy, allocation or wait is answered with a code in place of the driver; then the program goes on.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .answers import Case, ask, say

CODES = {"not permitted": 800, "not ready": 600, "system not ready": 802, "launch timeout": 702, "assert": 710,
         "external": 999, "cancelled": 909, "out of memory": 2}  # fmt: skip
_Program = Mapping[str, Callable[[], object]]
"""Calls by name; each returns what it computed, and the right value is the same at each call."""


def _torch() -> _Program:
    torch = importlib.import_module("torch")
    numbers = torch.arange(1000.0, device="cuda")
    torch.cuda.synchronize()
    return {
        "launch": lambda: float((numbers * 2).sum()),
        "copy out": lambda: float(numbers[3]),
        "copy in": lambda: float(torch.ones(10).cuda()[0]),
        "allocation": lambda: (
            torch.empty(2**28 + 2**20, dtype=torch.uint8, device="cuda").numel() + (torch.cuda.empty_cache() or 0)
        ),
        "wait": torch.cuda.synchronize,
    }


def _cupy() -> _Program:
    cupy = importlib.import_module("cupy")
    numbers = cupy.arange(1000.0)
    (numbers * 2).sum().item()
    return {
        "launch": lambda: float((numbers * 2).sum()),
        "copy out": lambda: float(numbers[3]),
        "copy in": lambda: float(cupy.asarray([1.0, 2.0])[0]),
        "allocation": lambda: (
            cupy.empty(2**28, dtype="u1").size + (cupy.get_default_memory_pool().free_all_blocks() or 0)
        ),
        "wait": cupy.cuda.Device().synchronize,
    }


def _numba() -> _Program:
    np, cuda = importlib.import_module("numpy"), importlib.import_module("numba.cuda")

    def doubled(array: Any) -> None:
        at = cuda.grid(1)
        if at < array.size:
            array[at] = at * 2

    double = cuda.jit(doubled)
    numbers = cuda.to_device(np.zeros(1000))
    double[8, 128](numbers)

    def launch() -> float:
        double[8, 128](numbers)
        return float(numbers.copy_to_host().sum())

    return {"launch": launch, "copy in": lambda: float(cuda.to_device(np.ones(4)).copy_to_host()[0]),
            "wait": cuda.synchronize}  # fmt: skip


def _jax() -> _Program:
    jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    numbers = jnp.arange(1000.0)
    double = jax.jit(lambda x: (x * 2).sum())
    float(double(numbers))
    return {"launch": lambda: float(double(numbers)), "copy in": lambda: float(jnp.asarray([1.0, 2.0])[0])}


_PROGRAMS: Mapping[str, Callable[[], _Program]] = {"torch": _torch, "cupy": _cupy, "numba": _numba, "jax": _jax}


@functools.cache
def _failing() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["LD_PRELOAD"])


def _said(call: Callable[[], object]) -> object:
    try:
        return call()
    except BaseException as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


def borne(program: str, code: int) -> None:
    """Say, for each call of a program, what a failed first try raises, and what the next two tries return."""
    calls = _PROGRAMS[program]()
    for name, call in calls.items():
        right = _said(call)
        before = _failing().fail_count()
        _failing().fail_next(code)
        first = _said(call)
        failed = _failing().fail_count() - before
        _failing().fail_next(0)
        say(call=name, right=right, failed=failed, first=first, then=[_said(call), _said(call)])


def _case(program: str, name: str) -> Case:
    def case() -> object:
        with tempfile.TemporaryDirectory(prefix="failing") as folder:
            library = Path(folder) / "failing.so"
            source = Path(__file__).with_name("failing.c")
            subprocess.run(["gcc", "-O2", "-w", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
            code = f"from benchmarks.survey.interrupted import borne; borne({program!r}, {CODES[name]})"
            env = {**os.environ, "LD_PRELOAD": str(library), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        print(done.stdout, end="", flush=True)
        return {"code": CODES[name], "status": done.returncode, "stderr": done.stderr[-300:] if done.returncode else ""}

    return case


CASES: dict[str, Case] = {
    f"{program}, {name}": _case(program, name) for program in _PROGRAMS for name in CODES
}  # fmt: skip

if __name__ == "__main__":
    ask(CASES)
