"""A real JupyterHub without Kubernetes, whose servers run as two users of the machine, with limits by root's file."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.cli import main
from tests import hub
from tests.cluster.testbed import until
from tests.devices import first_minor
from tests.hub import SECONDS, Person
from tests.kernel.servers import environment

pytestmark = pytest.mark.root

ANN, BOB, GROUP = "jgpu-ann", "jgpu-bob", "jgpu-research"
SINGLE = """
import sys
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
from jupyterhub.singleuser import main
main()
"""
CONFIG = """
import ctypes
from jupyterhub.spawner import LocalProcessSpawner

libc = ctypes.CDLL(None)

class Spawner(LocalProcessSpawner):
    # As it is, but that its servers may read Python where only root may: capabilities(7), ambient.
    def make_preexec_fn(self, name):
        become = super().make_preexec_fn(name)
        def preexec():
            libc.prctl(8, 1, 0, 0, 0)
            become()
            libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(4, 4, 4, 0, 0, 0))
            libc.prctl(47, 2, 2, 0, 0)
        return preexec

c.JupyterHub.spawner_class = Spawner
c.JupyterHub.allow_named_servers = True
c.Spawner.cmd = {command!r}
c.Spawner.args = {arguments!r}
c.Spawner.environment = {environment!r}
c.Spawner.default_url = "/lab"
"""
REFUSED = """
from jupyter_gpu import gpu
try:
    gpu.resize(2)
except Exception as error:
    print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Return a folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="jg-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def users(folder: Path) -> Iterator[None]:
    """Two users of the machine, one of them in a group; both are gone afterwards."""
    _forget()
    subprocess.run(["groupadd", GROUP], check=True)
    try:
        for name, groups in ((ANN, []), (BOB, ["--groups", GROUP])):
            subprocess.run(["useradd", "--create-home", "--home-dir", folder / name, *groups, name], check=True)
        yield
    finally:
        _forget()


def _forget() -> None:
    for command in (["userdel", ANN], ["userdel", BOB], ["groupdel", GROUP]):
        subprocess.run(command, check=False, capture_output=True)


@pytest.fixture(scope="module")
def address(folder: Path, users: None) -> Iterator[str]:
    """Return the address of a hub whose servers share three GPUs."""
    (shared := folder / "shared").mkdir()
    options = {
        "--ServerApp.jpserver_extensions": "{'jupyter_gpu': True}",
        "--GpuExtension.simulated_gpus": "3",
        "--GpuExtension.state_dir": str(folder / "state"),
    }
    kept = {k: v for k, v in environment(shared).items() if k not in ("HOME", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    config = CONFIG.format(
        command=[sys.executable, "-c", SINGLE, str(first_minor())],
        arguments=[f"{name}={value}" for name, value in options.items()],
        environment=kept,
    )
    (folder / "state").mkdir()
    (folder / "state").chmod(0o1777)
    with hub.running(folder, config) as address:
        yield address


def limits(folder: Path, *words: str) -> None:
    """Change limits, as an administrator does."""
    assert main(["limits", "set", "--limits-file", str(folder / "state" / "limits.json"), *words]) == 0


def person(address: str, name: str) -> Person:
    """Return a user who is logged in, and whose server runs and knows its limit."""
    somebody = Person(address, name)
    somebody.log_in()
    until(lambda: somebody.ask("GET", "status")["allocated"], SECONDS, "the limit")
    return somebody


def ends_at(somebody: Person, milli: int) -> None:
    """Wait until the slider of a user ends there."""
    until(lambda: somebody.ask("GET", "status")["limit"] == milli, SECONDS, f"the slider to end at {milli}")


def test_users_of_a_hub_have_the_limits_of_their_unix_users(address: str, folder: Path) -> None:
    """By name and by group; a wish above is refused to everybody, and a change moves the slider of a running server."""
    limits(folder, "default", "max=1", "grace=0s")
    limits(folder, f"group:{GROUP}", "max=2")
    ann, bob = person(address, ANN), person(address, BOB)
    ends_at(ann, 1000)
    ends_at(bob, 2000)
    with pytest.raises(AssertionError, match=r"LimitExceeded.*Your limit is 1 GPU, the default for everyone, set by"):
        ann.ask("PUT", "request", {"gpus": 2})
    assert ann.run(REFUSED) == "LimitExceeded"
    ann.ask("PUT", "request", {"gpus": 1})
    bob.ask("PUT", "request", {"gpus": 2})
    until(lambda: bob.ask("GET", "status")["amounts"]["attached"] == 2000, SECONDS, "two GPUs")
    assert f"set for group {GROUP} by" in bob.ask("GET", "status")["limit_source"]
    limits(folder, f"user:{BOB}", "max=1")
    until(lambda: bob.ask("GET", "status")["amounts"]["allocated"] == 1000, SECONDS, "one to be taken back")
    limits(folder, f"user:{ANN}", "max=2")
    ends_at(ann, 2000)
    ann.ask("PUT", "request", {"gpus": 2})
    until(lambda: ann.ask("GET", "status")["amounts"]["attached"] == 2000, SECONDS, "the GPU that was given back")
