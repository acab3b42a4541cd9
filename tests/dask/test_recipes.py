"""The recipes of docs/recipes, run in a real kernel, word for word."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.kernel.servers import Server

RECIPES = ROOT / "docs" / "recipes"
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


@pytest.mark.torch
def test_ddp_trains_as_one_process_does(server: Server) -> None:
    """Two ranks on two workers have one model: that of a training on all rows. PyTorch is that of the named Python."""
    names = [os.environ["JUPYTER_GPU_TEST_TORCH"], "-c", "import sys; print([path for path in sys.path if path])"]
    paths = subprocess.run(names, capture_output=True, text=True, check=True).stdout
    with server.kernel() as kernel:
        kernel.run(f"import sys; sys.path += {paths}")
        kernel.run(python_of("ddp.md"), timeout=110)
        kernel.run("def workers(): return len(client.scheduler_info(n_workers=-1)['workers'])")
        assert kernel.run(ALONE) == "True 2"
