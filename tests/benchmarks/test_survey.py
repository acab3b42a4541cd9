"""The survey of a real driver, on the stand-in, which supports no parking: its programs run, and answers are kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.building import ROOT, build_driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in driver, which supports no checkpoint; return its folder."""
    folder = tmp_path_factory.mktemp("driver")
    build_driver(folder)
    return folder


def test_answers_are_written(driver: Path, tmp_path: Path) -> None:
    """Cases that are asked side by side are answered, in the file as well."""
    out = tmp_path / "answers.jsonl"
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver), "JUPYTER_GPU_STANDIN": str(tmp_path / "boards")}
    command = [sys.executable, "-m", "benchmarks.survey", "failures:order", "failures:capture", "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, timeout=100)
    answers = {answer["case"]: answer for answer in map(json.loads, out.read_text().splitlines())}
    assert answers["order"]["answer"]["checkpoint, checkpoint, lock, unlock, state"] == [801] * 4 + [-801]
    assert answers["order"]["answer"]["works"] == {"contents": True, "fill": True, "kernel": [0, 0]}
    assert answers["capture"]["answer"]["global"] == {
        "launched": 0,
        "lock, state, rest": [801, -801],
        "end of capture": 0,
    }
