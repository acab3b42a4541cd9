"""The recipes of docs/recipes, run in a real kernel, word for word."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.kernel import pytorch
from tests.kernel.servers import SOFT, await_, environment, serve

RECIPES = ROOT / "docs" / "recipes"
PACKAGES = ROOT / ".cache" / "recipes"
"""Packages that `scripts/test` installs for the recipes."""
ALONE = """
import torch
torch.manual_seed(0)
inputs, wanted = torch.randn(64, 8), torch.randn(64, 1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), wanted).backward()
    optimizer.step()
alone = [row.tolist() for row in model.parameters()]
print(all(torch.allclose(torch.tensor(a), torch.tensor(b), atol=1e-5) for a, b in zip(alone, first)), workers())
"""
"""The same training in one process, on all rows at once."""


def python_of(page: str) -> str:
    """Return the code of a page."""
    return "\n".join(blocks((RECIPES / page).read_text(encoding="utf-8"), "python"))


@pytest.mark.pytorch
def test_ddp_trains_as_one_process_does(tmp_path: Path) -> None:
    """Two ranks on two workers have one model: that of a training on all rows."""
    with pytorch.notebook(tmp_path) as (_, kernel):
        kernel.run(python_of("ddp.md"), timeout=110)
        kernel.run("def workers(): return len(client.scheduler_info(n_workers=-1)['workers'])")
        assert kernel.run(ALONE) == "True 2"


@pytest.mark.ray
@pytest.mark.timeout(300)
def test_ray_runs_on_the_workers(tmp_path: Path) -> None:
    """Each of its nodes has the GPU of one worker; the end leaves no process of it, and the GPUs are free."""
    env = environment(tmp_path) | {"RAY_USAGE_STATS_ENABLED": "0"}
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(PACKAGES)])
    with serve(tmp_path, tmp_path / "state", SOFT, env=env) as server, server.kernel() as kernel:
        kernel.run(python_of("ray.md"), timeout=250)
        address = kernel.run("print(address)")
        kernel.run("gpu.release(timeout=30)")
        await_(lambda: not [one for one in psutil.process_iter() if address in " ".join(command(one))])


def command(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has just ended."""
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []
