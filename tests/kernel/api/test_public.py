"""The public names of the package, and the cost of its import."""

from __future__ import annotations

import inspect
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jupyter_gpu
from jupyter_gpu import gpu
from jupyter_gpu.kernel.api import ServerGpus
from jupyter_gpu.model import errors

HEAVY = (
    *("tornado", "jupyter_server", "jupyter_client", "kubernetes", "pynvml", "ipywidgets", "anywidget", "IPython"),
    *("asyncio", "http.client", "ssl", "dataclasses", "typing", "traitlets", "importlib.metadata"),
)


def test_public_names() -> None:
    """A public name that is added or removed must be changed here, too."""
    assert sorted(jupyter_gpu.__all__) == [
        "BackendUnavailable",
        "CannotSend",
        "CudaStartedTooEarly",
        "Draining",
        "ExtraNotInstalled",
        "GpuError",
        "Infeasible",
        "InvalidAnnotation",
        "InvalidRequest",
        "LimitExceeded",
        "NoCapacity",
        "NoGpuAttached",
        "NotPermitted",
        "OutsideServer",
        "ServerUnreachable",
        "StaleGeneration",
        "TooLarge",
        "Unhealthy",
        "WorkerLost",
        "WorkerRefused",
        "__version__",
        "aresize",
        "arun",
        "at_least",
        "client",
        "connect",
        "gpu",
        "keep",
        "machine",
        "on_change",
        "release",
        "resize",
        "run",
        "status",
        "task",
        "usage",
        "wait",
        "widget",
    ]
    assert all(getattr(jupyter_gpu, name) for name in jupyter_gpu.__all__)


def errors_in_the_guide() -> dict[str, str]:
    """Return the first and second column of the user guide's table of errors."""
    guide = (Path(__file__).parents[3] / "docs" / "user-guide.md").read_text()
    table = guide.partition("| error | when |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))


def test_every_error_in_the_guide_can_be_imported() -> None:
    """All are kinds of `GpuError`, and the package exports no others; `tests/docs` finds those that the guide lacks."""
    listed = errors_in_the_guide()
    assert len(listed) > 10
    for name in listed:
        assert issubclass(getattr(jupyter_gpu, name), jupyter_gpu.GpuError)
        assert name in jupyter_gpu.__all__
    public = {value for name in jupyter_gpu.__all__ if isinstance(value := getattr(jupyter_gpu, name), type)}
    assert {cls.__name__ for cls in public} - {"GpuError"} == set(listed)
    code = f"from jupyter_gpu import {', '.join(listed)}; print('fine')"
    assert fresh(code) == "fine"


@pytest.mark.parametrize("name", errors_in_the_guide())
def test_every_error_can_be_pickled(name: str) -> None:
    """Pickled in a worker, it is the same in the notebook."""
    known: dict[str, dict[str, Any]] = {
        "LimitExceeded": {"limit": 1000},
        "Infeasible": {"have": 1000},
        "NoCapacity": {"have": 0, "queue": 2},
        "Draining": {"holders": [{"pid": 7}]},
        "OutsideServer": {"servers": [{"url": "http://127.0.0.1:1/", "folder": ""}]},
        "Unhealthy": {"gpus": ["GPU-1"]},
        "StaleGeneration": {"current": 3},
        "InvalidRequest": {"field": "x"},
        "TooLarge": {"field": "x"},
    }
    details = known.get(name, {})
    error = getattr(jupyter_gpu, name)("What is wrong.", **details)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.details) == (str(error), error.details)


def test_gpu_is_that_of_each_process() -> None:
    """A function that uses it can be sent; one that was made apart cannot, as no other process has it."""
    assert pickle.loads(pickle.dumps(gpu)) is gpu
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(ServerGpus())


def test_version_is_no_submodule() -> None:
    """A submodule becomes an attribute of its package, so none may have the name of an attribute."""
    code = (
        "import types, jupyter_gpu; jupyter_gpu._version = types.ModuleType('_version'); print(jupyter_gpu.__version__)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == jupyter_gpu.__version__


def test_public_methods() -> None:
    """A public method of `gpu` that is added or removed must be changed here, too."""
    assert sorted(name for name in vars(ServerGpus) if not name.startswith("_")) == [
        "aresize",
        "arun",
        "at_least",
        "client",
        "connect",
        "devices",
        "keep",
        "machine",
        "map",
        "on_change",
        "overrule",
        "release",
        "remote",
        "resize",
        "run",
        "sentence",
        "status",
        "task",
        "usage",
        "wait",
        "widget",
    ]
    blocking, awaited = map(inspect.signature, (ServerGpus.resize, ServerGpus.aresize))
    assert blocking.parameters.keys() == awaited.parameters.keys()


def test_module_has_the_methods_of_gpu() -> None:
    """`import jupyter_gpu as gpu` works like `from jupyter_gpu import gpu`."""
    assert jupyter_gpu.gpu is gpu
    assert jupyter_gpu.resize == gpu.resize
    assert jupyter_gpu.NoCapacity is errors.NoCapacity
    with pytest.raises(AttributeError, match="no attribute 'resise'"):
        _ = jupyter_gpu.resise


def test_help_needs_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tools that read every name in `dir()` contact no server."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    assert "resize" in dict(inspect.getmembers(jupyter_gpu))


def test_extension_points() -> None:
    """JupyterLab and the server find their parts."""
    assert jupyter_gpu._jupyter_labextension_paths() == [{"src": "labextension", "dest": "jupyter-gpu"}]
    (point,) = jupyter_gpu._jupyter_server_extension_points()
    assert point["module"] == "jupyter_gpu.server.app"
    assert point["app"].name == "jupyter_gpu"


def fresh(code: str) -> str:
    """Return the output of a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("statement", ["import jupyter_gpu", "from jupyter_gpu import gpu"])
def test_import_is_light(statement: str) -> None:
    """Nothing heavy is loaded, and hardly anything of our own."""
    code = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    loaded = fresh(code).split()
    assert not [name for name in loaded if name.startswith(HEAVY)]
    assert [name for name in loaded if name.startswith("jupyter_gpu")] in (
        ["jupyter_gpu"],
        ["jupyter_gpu", "jupyter_gpu.kernel", "jupyter_gpu.kernel.api"],
    )


def test_use_is_light() -> None:
    """Even a call loads neither web framework nor widgets."""
    code = (
        "import sys, os; os.environ['JUPYTER_RUNTIME_DIR'] = '/nowhere'; from jupyter_gpu import gpu; repr(gpu);"
        "print(*[n for n in ('tornado', 'ipywidgets', 'anywidget', 'pynvml', 'jupyter_server', 'asyncio', 'IPython')"
        " if n in sys.modules])"
    )
    assert fresh(code) == ""


def test_star_import_needs_no_server() -> None:
    """`from jupyter_gpu import *` contacts no server."""
    assert fresh("from jupyter_gpu import *; print(gpu.resize.__name__, resize.__name__)") == "resize resize"
