"""A real JupyterHub whose servers all run as one user of the machine, with limits for the users of the hub."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hub
from tests.cluster.testbed import until
from tests.devices import first_minor
from tests.hub import SECONDS

from .test_hub import configured, counting, ends_at, folder, limits, person

pytestmark = pytest.mark.root

__all__ = ["folder"]  # a fixture

ALL, GROUP = "jgpu-all", "research"
ROOT = Path(__file__).parents[4]
CONFIG = """
from pathlib import Path
from jupyter_gpu.common.hub_users import HubUsers

class OneUser(Spawner):
    def make_preexec_fn(self, name):
        return super().make_preexec_fn({user!r})

    def user_env(self, env):
        return {{**env, "USER": self.user.name, "HOME": {home!r}, "SHELL": "/bin/sh"}}

c.JupyterHub.spawner_class = OneUser
c.JupyterHub.load_groups = {{{group!r}: {{"users": ["bob"]}}}}
c.Spawner.environment = {{**c.Spawner.environment, "JUPYTER_GPU_HUB_USER": HubUsers(Path({lasting!r}))}}
"""
FORGED = """
import asyncio, os
from pathlib import Path
os.environ.update(JUPYTERHUB_USER="ann", JUPYTER_GPU_HUB_USER={credential!r})
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = {minor}
from jupyter_gpu.backends.local import LocalBackend, Settings

async def limit():
    backend = LocalBackend(Settings(state_dir=Path({state!r}), simulated_gpus=3))
    await backend.start()
    while not (backend.view().allocated and backend.view().allocated.limit):
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)
    found = backend.view().limit
    await backend.stop()
    return found

from concurrent.futures import ThreadPoolExecutor
print(ThreadPoolExecutor(1).submit(asyncio.run, limit()).result())
"""
"""A notebook that starts another server, which pretends to be ann's."""


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """Return the address of a hub whose servers share three GPUs."""
    home = folder / "home"
    subprocess.run(["userdel", ALL], check=False, capture_output=True)
    subprocess.run(["useradd", "--create-home", "--home-dir", home, ALL], check=True)
    config = configured(folder) + CONFIG.format(user=ALL, home=str(home), group=GROUP, lasting=str(folder / "lasting"))
    try:
        with counting(folder), hub.running(folder, config, more={"PYTHONPATH": str(ROOT)}) as address:
            yield address
    finally:
        subprocess.run(["userdel", ALL], check=False, capture_output=True)


def test_users_of_a_hub_have_limits_of_their_own(address: str, folder: Path) -> None:
    """By the name and the groups in the hub, though all servers run as one user."""
    limits(folder, "default", "max=1", "grace=0s")
    limits(folder, "user:ann", "max=2")
    limits(folder, f"group:{GROUP}", "max=3")
    ann, bob, eve = (person(address, name) for name in ("ann", "bob", "eve"))
    ends_at(ann, 2000)
    ends_at(bob, 3000)
    ends_at(eve, 1000)
    ann.ask("PUT", "request", {"gpus": 1.5})
    until(lambda: ann.ask("GET", "status")["amounts"]["attached"] == 1500, SECONDS, "one GPU and a half")
    with pytest.raises(AssertionError, match=r"LimitExceeded.*Your limit is 1 GPU, the default for everyone"):
        eve.ask("PUT", "request", {"gpus": 2})
    limits(folder, "user:eve", "max=0")
    ends_at(eve, 0)
    ends_at(bob, 3000)


def test_notebook_cannot_pretend_to_be_of_another_user(address: str, folder: Path) -> None:
    """A second server of bob's that names ann counts for the machine's user, as it can't prove that."""
    limits(folder, "default", "max=1", "grace=0s")
    limits(folder, "user:ann", "max=3")
    limits(folder, f"user:{ALL}", "max=0.5")
    bob = person(address, "bob")
    state = str(folder / "state")
    for credential in ("", f"{'0' * 64}:ann"):
        code = FORGED.format(credential=credential, minor=first_minor(), state=state)
        assert bob.run(code) == "500"
