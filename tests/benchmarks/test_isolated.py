"""Benchmarks in processes of their own: one that hangs is ended with all that it started, and named."""

import importlib
import json
import sys
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks import sharing
from benchmarks.lib.figures import Figure
from benchmarks.lib.isolated import BrokenError, Outcome, run

HANGS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "child").write_text(str(child.pid))
    time.sleep(600)
finally:
    (folder / "removed").touch()
"""


def gone(pid: int) -> bool:
    """Return whether no process has this pid any more, except for a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_parts_are_chosen() -> None:
    """All of a benchmark that has some, or one; without names, each benchmark as a whole."""
    assert bench.chosen(["gate", "pairs:warm"]) == ["gate", "pairs:warm"]
    found = bench.chosen(["pairs"])
    assert {"pairs:days", "pairs:warm", "pairs:bytes", "pairs:dask", "pairs:decisions", "pairs:lending"} < {*found}
    assert bench.chosen([]) == bench.names()
    for word, why in (
        ("none", "no benchmark none"),
        ("pairs:none", "no part none; it has days"),
        ("gate:one", "none$"),
    ):
        with pytest.raises(ValueError, match=why):
            bench.chosen([word])


def test_hanging_benchmark_is_ended_with_its_children(tmp_path: Path) -> None:
    """It may remove what it made; what it started and left behind is killed."""
    with pytest.raises(BrokenError, match="within 2 s"):
        run([sys.executable, "-c", HANGS, str(tmp_path)], limit=2, grace=20)
    assert (tmp_path / "removed").exists()
    child = int((tmp_path / "child").read_text())
    end = time.monotonic() + 10
    while not gone(child) and time.monotonic() < end:
        time.sleep(0.01)
    assert gone(child)


def test_benchmark_that_ignores_the_interrupt_is_killed(tmp_path: Path) -> None:
    """The grace period is limited as well."""
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)"
    with pytest.raises(BrokenError):
        run([sys.executable, "-c", code], limit=1, grace=0.5)


def test_exit_status_is_passed_on() -> None:
    """It is that of the command."""
    assert run([sys.executable, "-c", "raise SystemExit(3)"], limit=60) == 3


@pytest.mark.parametrize("name", bench.names())
def test_every_module_listed_as_a_benchmark_can_run(name: str) -> None:
    """Modules that measure nothing lie in other folders."""
    assert callable(importlib.import_module(f"benchmarks.{name}").run)


def test_outcome_crosses_to_the_other_process() -> None:
    """No field of a figure is lost."""
    figure = Figure.of("a", "ms", [1.0, 2.0], "scripts/bench a", goal=3, baseline=[4.0])
    for outcome in (Outcome((figure, Figure("b", "s", 1, "scripts/bench b"))), Outcome(missing="no GPU")):
        assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


def test_broken_benchmark_is_named_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The figures of the others are shown, and the exit status tells that one is missing."""
    monkeypatch.setattr(sharing, "LIMIT_SECONDS", 1, raising=False)
    monkeypatch.setattr(sys, "argv", ["bench", "sharing", "imports"])
    assert bench.main() == 1
    found = capfd.readouterr()
    assert "Broken: sharing" in found.err
    assert "did not end within 1 s" in found.err
    assert "import jupyter_gpu" in found.out
