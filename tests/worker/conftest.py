"""A worker on this machine, and a connection to one of its kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.first_process import ask
from jupyter_gpu.remote.local_worker import LocalWorker
from jupyter_gpu.remote.rules.control import Kill


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalWorker]:
    """Start the first process of a worker, without a trace in the user's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.delenv("PYTEST_CURRENT_TEST", raising=False)  # with it, ipykernel does not read its own descriptors
        made = LocalWorker()
    yield made
    made.close()


@pytest.fixture(scope="module")
def kept(worker: LocalWorker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Connect to a kernel that all tests of a module use; none of them ends it."""
    made = Connection(worker.address, "kept", str(tmp_path_factory.mktemp("folder")))
    yield made
    made.close()


@pytest.fixture
def connection(worker: LocalWorker) -> Iterator[Connection]:
    """Connect to a kernel of one test."""
    made = Connection(worker.address, "own", "/")
    yield made
    made.close()
    ask(worker.address, Kill("own"))
