"""The cost of the gate's entries on a real driver, and the memory that it counts beside what NVML reports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpu.common.rules import search_path

from .answers import Case, ask, say
from .process import smi

_CALLS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = 0, *event = 0, *stream = 0;
    int (*init)(int) = dlsym(driver, "cuInit"), (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = dlsym(driver, "cuCtxSetCurrent"), (*current)(void **) = dlsym(driver, "cuCtxGetCurrent");
    int (*make)(void **, int) = dlsym(driver, "cuEventCreate"), (*ended)(void *) = dlsym(driver, "cuEventQuery");
    int (*version)(int *) = dlsym(driver, "cuDriverGetVersion"), (*query)(void *) = dlsym(driver, "cuStreamQuery");
    int number;
    if (init(0) || retain(&context, 0) || use(context) || make(&event, 0)) return 1;
    for (int round = 0; round < 5; round++) {
        double begin = now();
        for (int i = 0; i < 20000000; i++) version(&number);
        double a = now();
        for (int i = 0; i < 20000000; i++) current(&context);
        double b = now();
        for (int i = 0; i < 2000000; i++) ended(event);
        double c = now();
        for (int i = 0; i < 2000000; i++) query(stream);
        double d = now();
        printf("%.3f %.3f %.3f %.3f\n", (a - begin) / 2e7, (b - a) / 2e7, (c - b) / 2e6, (d - c) / 2e6);
    }
    return 0;
}
"""
_MEMORY = """
import sys, torch
kept = [torch.ones(256 << 20, dtype=torch.uint8, device="cuda")]
print("context and 256 MiB", flush=True); sys.stdin.readline()
kept.append(torch.randn(2048, 2048, device="cuda") @ torch.randn(2048, 2048, device="cuda"))
torch.cuda.synchronize()
print("cuBLAS", flush=True); sys.stdin.readline()
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    kept.append(kept[-1] * 2)
graph.replay(); torch.cuda.synchronize()
print("a graph", flush=True); sys.stdin.readline()
layer = torch.nn.Conv2d(64, 64, 3).cuda()
layer(torch.randn(32, 64, 128, 128, device="cuda")).sum().backward(); torch.cuda.synchronize()
print("cuDNN", flush=True); sys.stdin.readline()
streams = [torch.cuda.Stream() for _ in range(32)]
for stream in streams:
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1000)
torch.cuda.synchronize()
print("32 streams", flush=True); sys.stdin.readline()
"""


def _gated(folder: Path, share: str) -> Mapping[str, str]:
    from jupyter_gpu.backends.local.sharing import front
    from tests.gate.building import build_gate

    driver = front.driver_of(os.environ)
    assert driver
    gate = folder / "gate"
    if not gate.exists():
        build_gate(gate, driver)
    path = search_path.joined(str(gate), os.environ.get("LD_LIBRARY_PATH"))
    return {**os.environ, "LD_LIBRARY_PATH": path, "JUPYTER_GPU_GATE": str(folder / share / "shares")}


def _gpu() -> str:
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    return str(re.findall(r"UUID: (GPU-[0-9a-f-]+)", listed)[0])


def calls() -> object:
    """Nanoseconds of cuDriverGetVersion, cuCtxGetCurrent, cuEventQuery and cuStreamQuery, in turns without and with."""
    from tests.shares.serve import Serving

    with tempfile.TemporaryDirectory(prefix="e") as name, Serving(Path(name)) as serving:
        folder = Path(name)
        serving.set({_gpu(): {"one": 500}})
        (folder / "calls.c").write_text(_CALLS)
        subprocess.run(["gcc", "-O2", folder / "calls.c", "-o", folder / "calls", "-ldl"], check=True)
        gated = _gated(folder, "one")
        for env in (None, gated, None, gated):
            done = subprocess.run([folder / "calls"], env=env, capture_output=True, text=True, check=True)
            say(gated=env is not None, ns=[list(map(float, line.split())) for line in done.stdout.splitlines()])
    return None


def memory() -> object:
    """MiB of one program of PyTorch's by NVML, and those that the gate counts, step by step."""
    from tests.shares.serve import Serving

    gpu = _gpu()
    with tempfile.TemporaryDirectory(prefix="e") as name, Serving(Path(name)) as serving:
        serving.set({gpu: {"one": 500}})
        program = subprocess.Popen(
            [sys.executable, "-c", _MEMORY], env=_gated(Path(name), "one"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert program.stdin
        assert program.stdout
        while line := program.stdout.readline():
            time.sleep(0.3)
            usage = serving.usage(gpu, "one")
            say(
                step=line.strip(),
                nvml=smi("compute-apps", "pid,used_memory"),
                usage=usage,
            )
            program.stdin.write("\n")
            program.stdin.flush()
        return program.wait(20)


def parking() -> object:
    """Park programs of PyTorch's that run under the gate, which has threads of its own."""
    from tests.shares.serve import Serving

    gpu = _gpu()
    with tempfile.TemporaryDirectory(prefix="e") as name, Serving(Path(name)) as serving:
        serving.set({gpu: {"one": 500}})
        for case in ("torch", "torch, CUDA graph", "torch, streams"):
            command = [sys.executable, "-m", "benchmarks.survey.frameworks", case]
            done = subprocess.run(command, env=_gated(Path(name), "one"), capture_output=True, text=True, check=False)
            say(gated=case, status=done.returncode, said=done.stdout.splitlines()[-2:], stderr=done.stderr[-300:])
        return serving.usage(gpu, "one")


CASES: dict[str, Case] = {"calls": calls, "memory": memory, "parking": parking}

if __name__ == "__main__":
    ask(CASES, apart=__spec__.name)
