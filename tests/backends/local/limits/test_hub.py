"""A real JupyterHub without Kubernetes, whose servers run as two users of the machine, with limits by root's file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpu.cli import main
from jupyter_gpu.common import limits_file
from tests import hub
from tests.cluster.testbed import until
from tests.devices import first_minor
from tests.hub import SECONDS, Person
from tests.kernel.servers import environment, extensions

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
    with hub.running(folder, configured(folder)) as address:
        yield address


def configured(folder: Path) -> str:
    """Return the configuration of a hub whose servers share three GPUs, and make what it needs."""
    (shared := folder / "shared").mkdir()
    options = {
        "--ServerApp.jpserver_extensions": extensions("jupyterlab"),
        "--GpuExtension.simulated_gpus": "3",
        "--GpuExtension.state_dir": str(folder / "state"),
    }
    kept = {k: v for k, v in environment(shared).items() if k not in ("HOME", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")}
    (folder / "state").mkdir()
    (folder / "state").chmod(0o1777)
    return CONFIG.format(
        command=[sys.executable, "-c", SINGLE, str(first_minor())],
        arguments=[f"{name}={value}" for name, value in options.items()],
        environment=kept,
    )


@contextmanager
def counting(folder: Path) -> Iterator[None]:
    """Have GPU-hours counted, as root does."""
    words = ["--state-dir", str(folder / "state"), "--folder", str(folder / "lasting")]
    with subprocess.Popen([sys.executable, "-m", "jupyter_gpu.backends.local.accounting", *words]) as process:
        try:
            until((folder / "state" / limits_file.ACCOUNTS).exists, SECONDS, "the first accounts")
            yield
        finally:
            process.kill()


def limits(folder: Path, *words: str) -> None:
    """Change limits, as an administrator does."""
    assert main(["limits", "set", "--limits-file", str(folder / "state" / "limits.json"), *words]) == 0


def person(address: str, name: str, server: str = "") -> Person:
    """Return a user who is logged in, and whose server (of that name) runs and knows its limit."""
    somebody = Person(address, name, server)
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


def test_budget_of_a_user_of_a_hub_runs_out(address: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The GPUs above what is guaranteed go, of this user alone; the command shows the hours of both."""
    limits(folder, "default", "max=2", "grace=0s")
    ann, bob = person(address, ANN), person(address, BOB)
    ann.ask("PUT", "request", {"gpus": 1})
    bob.ask("PUT", "request", {"gpus": 1})
    with counting(folder):
        limits(folder, f"user:{BOB}", "max=inherit", "guaranteed=0.5", "budget=0.0028 per Month")
        until(lambda: bob.ask("GET", "status")["amounts"]["allocated"] == 500, SECONDS, "the end of the budget")
        assert "the used-up budget for you" in bob.ask("GET", "status")["limit_source"]
        assert ann.ask("GET", "status")["amounts"]["allocated"] == 1000
        capsys.readouterr()
        assert main(["limits", "usage", "--limits-file", str(folder / "state" / "limits.json"), "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["usage"]
        hours = {row["name"]: float(row["gpuHours"]) for row in rows}
        assert hours[BOB] >= 0.0028
        assert hours[ANN] > 0


def test_named_servers_of_a_user_share_the_limit(address: str, folder: Path) -> None:
    """The slider of each ends at what the others leave; what one gives back another may have."""
    limits(folder, f"user:{ANN}", "max=2")
    first, second, third = (person(address, ANN, server) for server in ("", "two", "three"))
    for one in (first, second):
        one.ask("PUT", "request", {"gpus": 1})
        until(lambda: one.ask("GET", "status")["amounts"]["attached"] == 1000, SECONDS, "a GPU")  # noqa: B023
    ends_at(third, 0)
    for one, gpus in ((first, 2), (second, 2), (third, 1)):
        with pytest.raises(
            AssertionError, match=r"LimitExceeded.*Your limit is 2 GPUs, set for you by .* other servers have"
        ):
            one.ask("PUT", "request", {"gpus": gpus})
    first.ask("PUT", "request", {"gpus": 0})
    ends_at(third, 1000)
    third.ask("PUT", "request", {"gpus": 1})
    until(lambda: third.ask("GET", "status")["amounts"]["attached"] == 1000, SECONDS, "the GPU that was given back")
    ends_at(first, 0)
