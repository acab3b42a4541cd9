"""Fixtures of Jupyter servers, the order of tests, and reports of tests that cannot run here."""

import gc
import os
import signal
import warnings
from collections.abc import Generator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.cluster.testbed import existing
from tests.counting import counted_lines, import_measured, is_counted, uncounted
from tests.kernel import pytorch
from tests.reaper import Reaper

# The time of one example depends more on what else the machine does than on the code.
hypothesis.settings.register_profile(
    "no deadline", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("no deadline")

REAPER = Reaper()

pytest_plugins = ["pytest_jupyter.jupyter_server"]

NEEDS = {
    "cluster": existing.OWN,
    "root": "needs root",
    "gpu": "needs an NVIDIA GPU",
    "torch": "needs a Python with PyTorch for CUDA, named by JUPYTER_GPU_TEST_TORCH",
    "pytorch": "needs PyTorch for the CPU: that of Debian, which scripts/test takes, or the one named for CUDA",
    "ray": "needs Ray in .cache/recipes, where scripts/test installs it",
}

INSTALLED = "tests/cluster/whole"
"""Folder of tests that share one cluster with the product, and so run one after another."""
NODES = (
    "tests/cluster/",
    "tests/deploy/test_images.py",
    "tests/deploy/test_install.py",
    "tests/kubelet/",
    "tests/packaging/test_release.py",
)
"""Tests that need nodes or images. All others marked `cluster` need an API server only, and are marked `plane`, too."""
FIRST = (
    INSTALLED,
    "tests/deploy/test_install.py",
    "tests/kubelet/test_real.py",
    "tests/agent/test_sharing.py",
    "tests/scheduler_process/test_controller.py",
    "tests/scheduler_process/test_extender.py",
    "tests/kernel/connection/test_local_endpoint.py",
    "tests/shares/turns/test_gangs.py",
    "tests/binder/test_binder.py",
    "tests/packaging/test_wheel.py",
    "tests/hub_service/test_page_in_browser.py",
)
"""Groups of tests that take long; they begin first, so that none of them is still running alone at the end.

The browser of the last one stops loading a page when a cluster beside the tests changes the machine's networks; none is
there at the beginning."""


TIMER = pytest.StashKey[object]()
CLEARED = pytest.StashKey[str]()
"""The group before whose properties the garbage of earlier groups was collected."""


def missing(marker: str) -> bool:
    """Tell whether something that tests with this marker need is missing."""
    if marker == "cluster":
        return bool(existing.choice().context)
    if marker == "root":
        return os.geteuid() != 0
    if marker == "torch":
        return not os.environ.get("JUPYTER_GPU_TEST_TORCH")
    if marker == "pytorch":
        return not pytorch.is_there()
    if marker == "ray":
        return not (Path(__file__).parents[1] / ".cache" / "recipes" / "ray").is_dir()
    return not Path("/proc/driver/nvidia/version").exists()  # a device node outlives its driver


def pytest_configure() -> None:
    """Restore Ctrl-C: programs that a shell starts in the background ignore it, and so would all that tests start."""
    REAPER.start()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> list[str]:
    """Print which cluster is used, if there is more than one answer, and where lines are counted, if they are."""
    counted = ["lines are counted in the tests of tests/counting.py alone"] if coverage.Coverage.current() else []
    return [existing.choice().why, *counted]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: every worker collects all tests, which stay until the end."""
    import_measured()
    gc.disable()
    try:
        with uncounted():
            return (yield)
    finally:
        gc.freeze()  # the collector never looks at the tests again
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test has another chance, one on a cluster two: dozens of processes share two cores. The summary names each.

    A property has none: what it found by chance once is a mistake, though the next examples are without it.
    """
    items.sort(key=lambda item: turn(group_of(item.nodeid)))
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.flaky(reruns=2))
            if not item.nodeid.startswith(NODES) and not existing.choice().context:
                item.add_marker("plane")
        elif not is_property(item):
            item.add_marker(pytest.mark.flaky(reruns=1))


def is_property(item: pytest.Item) -> bool:
    """Tell whether hypothesis looks for an example that breaks the test."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def clear(item: pytest.Item) -> None:
    """Collect the garbage of earlier groups before the first property of a group.

    A property makes much garbage, so what other tests left open was often found in one, which has no other chance.
    """
    group = group_of(item.nodeid)
    if is_property(item) and item.session.stash.get(CLEARED, None) != group:
        item.session.stash[CLEARED] = group
        with warnings.catch_warnings(action="ignore"):
            gc.collect()


def turn(group: str) -> tuple[int, bool]:
    """Return the key by which groups are sorted: long ones come first, and those that only calculate last.

    These keep a processor busy until the end, where others would wait alone for the processes that they start.
    """
    return FIRST.index(group) if group in FIRST else len(FIRST), is_counted(group)


def group_of(nodeid: str) -> str:
    """Return the group that runs in one worker, one after another: a file, or the tests of the installed product."""
    path = nodeid.partition("::")[0]
    return INSTALLED if path.startswith(f"{INSTALLED}/") else path


class ByGroup(LoadScopeScheduling):  # type: ignore[misc] # it says nothing of types
    """A scheduler that gives each group to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # nobody asks for it where that plugin is off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    """Run groups in the order in which they were collected."""
    return ByGroup(config, log)


@pytest.hookimpl(optionalhook=True)  # of pytest-timeout
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> None:
    """Record the timeout."""
    item.stash[TIMER] = settings


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Say what is not run; where CI promises root, a test that needs it fails rather than vanish.

    Another chance has as much time as the first one, which may have used up the timer that is set for both.
    """
    if getattr(item, "execution_count", 1) > 1 and TIMER in item.stash:
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[TIMER])
    if item.get_closest_marker("existing") and existing.choice().context:
        return  # no cluster need be made, which is what takes root
    for marker, need in NEEDS.items():
        if item.get_closest_marker(marker) is None or not missing(marker):
            continue
        if marker == "root" and os.environ.get("CI") == "true":
            pytest.fail(f"{need}, and CI must run every such test: start it as root", pytrace=False)
        pytest.skip(f"not run: {need}")


@pytest.hookimpl(wrapper=True, trylast=True)  # within that of pytest-cov, which stops counting afterwards
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Count nothing in the process that hands the tests out to workers."""
    with uncounted() if session.config.pluginmanager.hasplugin("dsession") else nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count lines only in tests of decisions, and in no process or thread that the others start."""
    clear(item)
    with nullcontext() if is_counted(item.nodeid) else uncounted():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Count the lines that the test runs, or those of some of its examples, or none."""
    with counted_lines(item):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were not run, so that nobody takes them for passed, and why tests were given another chance."""
    skipped = [str(report.longrepr) for report in terminalreporter.getreports("skipped")]
    for need in NEEDS.values():
        count = sum(f"not run: {need}" in reason for reason in skipped)
        if count:
            terminalreporter.write_line(f"NOT RUN: {count} ({need})", yellow=True)
    for report in terminalreporter.getreports("rerun"):
        crashes = [crash for _, crash, _ in getattr(report.longrepr, "chain", ()) if crash]  # the cause comes first
        why = " → ".join(f"{each.path}:{each.lineno}: {each.message}" for each in crashes) or report.longreprtext
        terminalreporter.write_line(f"TRIED AGAIN: {report.nodeid}: {' '.join(why.split())[-3000:]}", yellow=True)
