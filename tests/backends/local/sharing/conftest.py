"""Fixtures of the tests of time shares on one machine."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_node.gpus import simulated
from tests.backends.local.stage import Nursery
from tests.devices import first_minor
from tests.gate.building import PROGRAMS, build_driver

from .machine import Machine


@pytest.fixture(scope="session")
def standin() -> Iterator[Path]:
    """A folder with the stand-in driver and the test program, which every user may read."""
    with tempfile.TemporaryDirectory(prefix="jg-standin-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        build_driver(folder)
        program = ["gcc", "-O1", "-w", "-pthread", str(PROGRAMS / "client.c"), "-o", str(folder / "client")]
        subprocess.run(program, check=True)
        yield folder


@pytest.fixture
def machine(nursery: Nursery, short_tmp: Path, standin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One with a GPU."""
    monkeypatch.setattr(simulated, "FIRST_MINOR", first_minor())
    made = Machine(nursery, short_tmp / "state", standin)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def roots(machine: Machine) -> Machine:
    """Its state directory is root's, as an administrator makes it; root has no server."""
    machine.state.mkdir()
    machine.state.chmod(0o1777)
    return machine
