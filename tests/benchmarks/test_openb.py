"""A recorded cluster: how its files are read, and in which order its pods come."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.lib import openb
from benchmarks.placement import main
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.state.snapshot import CPU

NODES = """sn,cpu_milli,memory_mib,gpu,model
plain,32000,1024,0,
small,16000,1024,1,T4
large,96000,2048,2,V100M32
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos
a,8000,128,1,500,,LS
b,8000,128,2,1000,T4|V100M32,LS
c,4000,128,0,0,,LS
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A folder with a small trace."""
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods_default.csv").write_text(PODS)
    return tmp_path


def test_nodes_are_read(trace: Path) -> None:
    """With their GPUs, CPU and memory; figures of others leave those without GPUs out."""
    nodes = openb.read_nodes(trace / "nodes.csv")
    assert {name: [gpu.model for gpu in gpus] for name, (gpus, _) in nodes.items()} == {
        "plain": [],
        "small": ["T4"],
        "large": ["V100M32"] * 2,
    }
    assert nodes["large"][1].allocatable[CPU] == 96_000
    assert list(openb.with_gpus(nodes)) == ["small", "large"]
    assert openb.capacity(nodes) == 3000
    assert list(openb.sample(nodes, 0.5)) == ["plain", "large"]
    assert openb.endless(nodes)["small"][1].allocatable[CPU] > 10**9


def test_pods_are_read(trace: Path) -> None:
    """A part of a GPU, whole ones of some models, and none."""
    pods = openb.read_pods(trace / "pods_default.csv")
    assert [pod.requested.wish for pod in pods if pod.requested] == [
        Wish(500),
        Wish(2000, model=("T4", "V100M32")),
        Wish(0),
    ]
    assert [(pod.slots, pod.asks[CPU]) for pod in pods] == [(1, 8000), (1, 8000), (0, 4000)]


def test_all_pods_come_once_before_any_comes_again(trace: Path) -> None:
    """In an order that the seed decides, until they wished for enough."""
    pods = openb.read_pods(trace / "pods_default.csv")
    orders = [list(openb.shuffled(pods, 9000, seed)) for seed in range(8)]
    for order in orders:
        kinds = [(pod.requested, pod.slots) for pod in order[:3]]
        assert len(set(kinds)) == 3
        assert len({pod.uid for pod in order}) == len(order)
        assert all(one.created < other.created for one, other in pairwise(order))
        wished = [pod.requested.milli for pod in order if pod.requested]
        assert sum(wished) >= 9000 > sum(wished[:-1])
    assert len({tuple(pod.requested for pod in order[:3]) for order in orders}) > 1


def test_command_says_what_was_allocated(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for each combination; the folder comes from an argument or from the environment."""
    monkeypatch.setenv("JUPYTER_GPU_OPENB", str(trace))
    monkeypatch.setattr("sys.argv", ["placement", "--weight", "0", "1", "--worker", "none", "100", "--seed", "1"])
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("pods_default.csv, fgd, weight ") and "of 3 GPUs allocated" in line for line in lines)
    assert [("no pairs" in line, "workers of 100 milli" in line) for line in lines] == [
        (True, False),
        (False, True),
    ] * 2
