"""One fixture: a backend that is not started, for each kind that this machine can run."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.backends.local import LocalBackend, Settings
from jupyter_gpu_node.gpus import simulated
from tests.backends.local.stage import end_arbiters
from tests.cluster.testbed import ControlPlane, Existing, borrowed, control_plane, existing
from tests.devices import first_minor

if TYPE_CHECKING:
    from tests.hub_service.world import World

Make = Callable[..., Backend]
"""A new backend of the kind under test on a machine with three GPUs; its arguments are the backend's own."""

Beside = Callable[[Any], AbstractContextManager[None]]
"""Parts of a cluster's stage that run beside a test."""

KINDS = [
    pytest.param("soft"),
    pytest.param("required", id="enforced", marks=pytest.mark.root),
    pytest.param("kubernetes", marks=[pytest.mark.cluster, pytest.mark.existing]),
    pytest.param("kubernetes-hub", marks=pytest.mark.cluster),
]


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane | Existing]:
    """Start etcd and the API server, or use a cluster that exists, where that is allowed."""
    if existing.choice().context:
        with borrowed() as cluster:
            yield cluster
    else:
        with control_plane() as made:
            yield made


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Start a hub with its service, and an API server of its own."""
    from tests.hub_service import world as worlds

    with worlds.running(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture
def beside() -> Beside:
    """Do nothing; a module can override it."""
    return contextlib.nullcontext


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, beside: Beside) -> Iterator[Make]:
    """Return a function that makes backends; those made in one test are servers of the same machine."""
    if request.param == "kubernetes":
        from tests.backends_kubernetes.stage import Stage

        with Stage(request.getfixturevalue("plane")) as stage, beside(stage):
            yield stage.make
        return
    if request.param == "kubernetes-hub":
        from tests.backends_kubernetes.stage import Stage

        world: World = request.getfixturevalue("hub")
        with Stage(world.plane, hub=world) as stage, beside(stage):
            yield stage.make
        return
    monkeypatch.setattr(simulated, "FIRST_MINOR", first_minor())
    with tempfile.TemporaryDirectory(prefix="jg-") as folder:

        def made(**options: object) -> Backend:
            given = {"state_dir": Path(folder) / "state", "simulated_gpus": 3, "enforcement": request.param, **options}
            return LocalBackend(Settings(**given))

        yield made
        end_arbiters(Path(folder) / "state")
