"""The choice of tests whose lines coverage counts: counting makes a test two to four times as slow."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

COUNTED = (
    "tests/backends/local/limits/test_meters.py",
    "tests/backends/local/limits/test_owner_terms.py",
    "tests/backends/local/rules",
    "tests/backends/local/sharing/test_memory_room.py",
    "tests/backends/local/sharing/test_rules.py",
    "tests/backends/local/site/test_apart.py",
    "tests/backends/local/site/test_site_limit.py",
    "tests/backends/local/test_real.py",
    "tests/backends_kubernetes/test_hub_answer.py",
    "tests/backends_kubernetes/test_pod_state.py",
    "tests/backends_kubernetes/test_refusal.py",
    "tests/backends_kubernetes/test_views.py",
    "tests/backends_kubernetes/test_workers.py",
    "tests/commands/test_accounting.py",
    "tests/commands/test_doctor.py",
    "tests/commands/test_limit_file.py",
    "tests/commands/test_limit_words.py",
    "tests/commands/test_shells.py",
    "tests/commands/test_watch_view.py",
    "tests/commands/test_ways.py",
    "tests/commands/test_workers_table.py",
    "tests/common/test_visible.py",
    "tests/dask/test_follow.py",
    "tests/hub_service/rules",
    "tests/kernel/api/test_waiting.py",
    "tests/kernel/connection/test_discovery.py",
    "tests/kernel/cuda/test_guard.py",
    "tests/kernel/cuda/test_looks.py",
    "tests/kernel/launch/test_launching.py",
    "tests/kernel/reports",
    "tests/kernel/widget/test_parts.py",
    "tests/kube/test_pure.py",
    "tests/model",
    "tests/node/agent",
    "tests/node/devices/test_device_program.py",
    "tests/node/devices/test_hierarchy_check.py",
    "tests/node/devices/test_pod_cgroup.py",
    "tests/node/devices/test_program_reader.py",
    "tests/node/gpus/test_busy.py",
    "tests/node/gpus/test_compute.py",
    "tests/node/gpus/test_fabric.py",
    "tests/node/gpus/test_kfd.py",
    "tests/node/gpus/test_managed.py",
    "tests/node/gpus/test_second_owners.py",
    "tests/node/gpus/test_simulated_load.py",
    "tests/node/gpus/test_slowness.py",
    "tests/node/gpus/test_vendors.py",
    "tests/node/gpus/test_xids.py",
    "tests/node/holders",
    "tests/node/kubelet/test_allocation.py",
    "tests/node/kubelet/test_requests.py",
    "tests/node/kubelet/test_slots.py",
    "tests/node/processes/test_proc_stat.py",
    "tests/node/processes/test_scan_budget.py",
    "tests/node/shares",
    "tests/node/top/test_view.py",
    "tests/parking/rules",
    "tests/remote",
    "tests/scheduler",
    "tests/scheduler_process/test_kept_terms.py",
    "tests/scheduler_process/test_owners.py",
    "tests/scheduler_process/test_records.py",
    "tests/scheduler_process/test_wire.py",
    "tests/server/monitoring/test_figures.py",
    "tests/server/start/test_hub_service.py",
    "tests/server/start/test_limits_page.py",
    "tests/server/views/test_events.py",
    "tests/server/views/test_gateway.py",
    "tests/server/views/test_idle_times.py",
    "tests/server/views/test_pairing.py",
    "tests/server/views/test_traffic.py",
    "tests/shares/scans/test_usage_by_process.py",
    "tests/shares/server/test_debts.py",
    "tests/shares/server/test_store.py",
    "tests/shares/test_pace.py",
    "tests/shares/test_protocol.py",
    "tests/shares/test_share_file.py",
    "tests/shares/turns",
    "tests/shares/violations",
)
"""Folders and files of the tests in which lines are counted: those that call decisions and start no process."""


def is_counted(nodeid: str) -> bool:
    """Return whether lines are counted in a test, by its path."""
    path = nodeid.partition("::")[0]
    return any(path == one or path.startswith(f"{one}/") for one in COUNTED)


def import_measured() -> None:
    """Import all modules whose lines are counted: their own lines run only then, and tests are collected uncounted."""
    running = coverage.Coverage.current()
    if running is None or sys.gettrace() is None:
        return
    folders = running.get_option("run:source")
    for folder in folders if isinstance(folders, list) else ():
        for module in modules_in(Path(folder)):
            importlib.import_module(module)


def modules_in(folder: Path) -> Iterable[str]:
    """Return the names of all modules in a folder of a package, those of its folders among them."""
    packages = [folder.name]
    for above in folder.parents:
        if not (above / "__init__.py").exists():
            break
        packages.insert(0, above.name)
    for file in sorted(folder.rglob("*.py")):
        inside = file.relative_to(folder).with_suffix("").parts
        yield ".".join([*packages, *inside]).removesuffix(".__init__")


@contextmanager
def uncounted() -> Iterator[None]:
    """Count no lines, neither here nor in threads that start meanwhile."""
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)


@contextmanager
def counted_lines(item: pytest.Item) -> Iterator[None]:
    """Count all lines that the test runs, none (marker `uncounted`), or those of the first examples (``after``)."""
    marker, tracer = item.get_closest_marker("uncounted"), sys.gettrace()
    if marker is None or tracer is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        if examples := marker.kwargs.get("after"):
            _count_examples(item, examples, patch)
        else:
            sys.settrace(None)
        try:
            yield
        finally:
            sys.settrace(tracer)


def _count_examples(item: pytest.Item, examples: int, patch: pytest.MonkeyPatch) -> None:
    """Have the property's test stop the counting after so many examples."""
    function = getattr(item, "obj", None)
    if machine := getattr(function, "_hypothesis_state_machine_class", None):
        patch.setattr(machine, "teardown", _stopping(machine.teardown, examples))
    elif handle := getattr(function, "hypothesis", None):
        patch.setattr(handle, "inner_test", _stopping(handle.inner_test, examples))


def _stopping(test: Callable[..., Any], examples: int) -> Callable[..., Any]:
    """Return what does the same, and stops the counting when it has been called so many times."""
    calls = 0

    @functools.wraps(test)
    def called(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > examples:
            sys.settrace(None)
        return test(*arguments, **named)

    return called
