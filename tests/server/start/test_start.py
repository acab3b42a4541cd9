"""The modules that a server loads until it answers: every module and every class costs all users at each start."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec, resolve_name
from pathlib import Path

import pytest

import jupyter_gpu
from tests.server.conftest import Call

STARTED = "jupyter_gpu.server.app, jupyter_gpu.backends.local, jupyter_gpu_node.gpus.simulated"
LATER = frozenset(
    {
        "jupyter_gpu.backends.local.cleanup",
        "jupyter_gpu.backends.local.decision",
        "jupyter_gpu.backends.local.scans.holder_scan",
        "jupyter_gpu.backends.local.records.servers",
        "jupyter_gpu.backends.local.sharing.ending",
        "jupyter_gpu.backends.local.sharing.front",
        "jupyter_gpu.backends.local.sharing.rules.revocation",
        "jupyter_gpu.backends.share_files",
        "jupyter_gpu.kernel.discovery",
        "jupyter_gpu.backends.local.pod",
        "jupyter_gpu.backends.local.rules.views",
        "jupyter_gpu.doctor",
        "jupyter_gpu.server.handlers",
        "jupyter_gpu.server.service",
        "jupyter_gpu.server.rules.launching",
        "jupyter_gpu.model.share",
        "jupyter_gpu.model.usage",
        "jupyter_gpu.server.monitoring.rules.figures",
        "jupyter_gpu.server.monitoring.routes",
        "jupyter_gpu.server.provisioner",
        "jupyter_gpu.server.usage_route",
        "jupyter_gpu_node.gpus.simulated_programs",
        "jupyter_gpu_node.agent.rules.plan",
        "jupyter_gpu_node.gpus.rules.simulated_sensors",
        "jupyter_gpu_scheduler",
    }
)
"""Modules loaded with the first scan after the start, the first GPU, the first kernel, or the first request."""
TO_SHOW = frozenset(
    {
        "jupyter_gpu.backends.local.records.servers",
        "jupyter_gpu.backends.share_files",
        "jupyter_gpu.model.details",
        "jupyter_gpu.model.overview",
    }
)
"""Modules that the pod of a server needs only to show something."""
MOST_DATACLASSES = 7
"""Dataclasses, at most: a frozen one costs half a millisecond, a NamedTuple a tenth."""


def started(told: str) -> object:
    """Evaluate ``told``, an expression, in a program that has loaded what a server has at its first answer."""
    code = f"import dataclasses, json, sys, {STARTED}; print(json.dumps({told}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_start_loads_only_needed_modules() -> None:
    """The extension and the backend of one machine load none of the modules that are needed later."""
    assert started(f"sorted({set(LATER)} & sys.modules.keys())") == []


@pytest.mark.parametrize("module", ["pod", "scans.pod_scanner", "steps", "sharing.pod_client"])
def test_first_reconcile_loads_all_gpu_modules(module: str) -> None:
    """A server whose package is replaced on the disk continues with the modules that fit each other."""
    needed = set(imported_in_functions(f"jupyter_gpu.backends.local.{module}")) - TO_SHOW
    assert needed
    assert started(f"jupyter_gpu.backends.local.backend.load() or sorted({needed} - sys.modules.keys())") == []


def imported_in_functions(module: str) -> Iterator[str]:
    """Yield the modules that functions of ``module`` import."""
    path = Path(jupyter_gpu.__file__).parents[1] / f"{module.replace('.', '/')}.py"
    for function in ast.walk(ast.parse(path.read_text())):
        for line in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(line, ast.ImportFrom):
                name = resolve_name("." * line.level + (line.module or ""), module.rpartition(".")[0])
                found = find_spec(name)
                assert found is not None
                is_package = found.submodule_search_locations is not None
                yield from (f"{name}.{item.name}" for item in line.names) if is_package else (name,)


def test_start_makes_few_dataclasses() -> None:
    """Values that a start needs are named tuples, except what is written to pods, the view and the device rules."""
    ours = "[m for m in list(sys.modules.values()) if m.__name__.startswith('jupyter_gpu')]"
    made = started(
        f"sorted({{f'{{c.__module__}}.{{c.__name__}}' for m in {ours} for c in vars(m).values() "
        "if isinstance(c, type) and dataclasses.is_dataclass(c) and c.__module__.startswith('jupyter_gpu')})"
    )
    assert isinstance(made, list)
    assert len(made) <= MOST_DATACLASSES, made


@pytest.mark.parametrize("path", ["usage", "doctor", "details", "machine"])
async def test_lazily_loaded_route_is_protected(call: Call, path: str) -> None:
    """Its first request is answered to a user who may ask; no other user and no other verb passes the placeholder."""
    assert (await call(path)).code == 200
    assert (await call(path, headers={"Authorization": ""})).code == 403
    refused = await call(path, method="DELETE")
    assert (refused.code, refused.body["reason"]) == (405, "InvalidRequest")
