"""The survey of a real driver, on the stand-in, which parks as it does: its programs run, and answers are kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.building import ROOT, build_driver

QUICK = {f"JUPYTER_GPU_STANDIN_PARK_{name}": "0" for name in ("BASE", "OUT", "IN")}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in driver; return its folder."""
    folder = tmp_path_factory.mktemp("driver")
    build_driver(folder)
    return folder


def test_answers_are_written(driver: Path, tmp_path: Path) -> None:
    """Cases that are asked side by side are answered, in the file as well."""
    out = tmp_path / "answers.jsonl"
    env = {**os.environ, **QUICK, "LD_LIBRARY_PATH": str(driver), "JUPYTER_GPU_STANDIN": str(tmp_path / "boards")}
    command = [sys.executable, "-m", "benchmarks.survey", "failures:order", "failures:capture", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=100)
    answers = {answer["case"]: answer for answer in map(json.loads, out.read_text().splitlines())}
    order = answers["order"]["answer"]
    assert order["running: checkpoint, restore, unlock, state"] == [401, 401, 401, 0]
    assert order["checkpoint, checkpoint, lock, unlock, state"] == [0, 401, 401, 401, 2]
    assert order["restore, unlock, unlock, state"] == [0, 0, 401, 0]
    assert order["works"] == {"contents": True, "fill": True, "kernel": [0, 0]}
    assert answers["capture"]["answer"]["global"] == {
        "launched": 0,
        "lock, state, rest": [0, 1, 0, 0, 0, 0],
        "end of capture": 0,
    }


HEADER = """
#define cuEventDestroy cuEventDestroy_v2
CUresult CUDAAPI cuCtxGetCurrent(CUcontext *pctx);
/* CUresult CUDAAPI cuEventDestroy(int old); */
CUresult CUDAAPI cuEventDestroy(CUevent hEvent);
CUresult CUDAAPI cuMemcpyDtoH(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount);
CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                void **kernelParams, void **extra);
CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream);
"""


def test_functions_are_called_with_what_their_header_says(driver: Path, tmp_path: Path) -> None:
    """Calls with handles made by the types of parameters succeed; while parked all but one wait, and go on rightly."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda.h").write_text(HEADER)
    env = {**os.environ, **QUICK, "LD_LIBRARY_PATH": str(driver), "CUDA_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    env["JUPYTER_GPU_STANDIN"] = str(tmp_path / "boards")
    names = ["cuCtxGetCurrent", "cuEventDestroy", "cuMemcpyDtoH", "cuLaunchKernel", "cuGraphLaunch"]

    def said(state: str) -> tuple[list[dict[str, object]], int]:
        command = [sys.executable, "-m", "benchmarks.survey.functions", "child", state, *names]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
        return [json.loads(line) for line in done.stdout.splitlines()], done.returncode

    answers, status = said("running")
    assert {answer["name"]: answer["code"] for answer in answers if "code" in answer} == dict.fromkeys(names, 0)
    assert status == 0
    answers, status = said("parked")
    assert [answer["name"] for answer in answers if answer.get("blocks")] == names[1:]
    assert {answer["later"]: answer["code"] for answer in answers if "later" in answer} == dict.fromkeys(names[1:], 0)
    assert status == 0
