"""The judge of what the prober saw, and the prober on devices that any user may open."""

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.whole import prober
from tests.cluster.whole.judge import Interval, failures, judge, spans

LINES: list[dict[str, object]] = [
    {"started": True, "time": 1.0, "attempts": 0},
    {"time": 1.1, "attempts": 2},
    {"device": "/dev/a", "open": True, "time": 2.0, "failed": 1.9, "attempts": 10},
    {"time": 3.0, "attempts": 20},
    {"device": "/dev/a", "open": False, "time": 4.0, "failed": 4.1, "attempts": 30},
    {"device": "/dev/b", "open": True, "time": 5.0, "failed": 4.9, "attempts": 40},
    {"time": 6.0, "attempts": 50},
    {"started": True, "time": 7.0, "attempts": 0},
    {"time": 8.0, "attempts": 5},
    {"time": 9.0, "attempts": 5},
]
A, B = Interval(2.0, 4.0), Interval(5.0, 6.0)


def test_spans_end_with_the_last_success_or_the_prober() -> None:
    """A restarted prober begins anew."""
    assert spans(LINES) == {"/dev/a": [A], "/dev/b": [B]}


def test_allowed_attempts_are_right() -> None:
    """Attempts of all probers are counted."""
    verdict = judge(LINES, {"/dev/a": [Interval(1.5, 4.5)], "/dev/b": [B]}, {"/dev/a": [Interval(2.5, 3.5)]})
    assert (verdict.attempts, verdict.successes, verdict.wrong) == (55, 2, ())


def test_success_outside_of_a_grant_is_wrong() -> None:
    """A success may be too early, too late, or on a device that was never granted."""
    for may in (Interval(2.1, 5.0), Interval(1.0, 3.9)):
        assert len(judge(LINES, {"/dev/a": [may], "/dev/b": [B]}, {}).wrong) == 1
    assert len(judge(LINES, {"/dev/a": [A]}, {}).wrong) == 1


def test_failure_within_a_grant_is_wrong() -> None:
    """A device has to open all the time that it is attached, as far as a prober tries."""
    allowed = {"/dev/a": [A], "/dev/b": [B]}
    assert failures(LINES, "/dev/a") == [Interval(1.1, 1.9), Interval(4.1, 6.0), Interval(8.0, 9.0)]
    assert failures(LINES, "/dev/b") == [Interval(1.1, 4.9), Interval(8.0, 9.0)]
    for start, end, wrong in ((1.9, 4.1, 0), (3.0, 4.5, 1), (1.5, 3.0, 1), (6.0, 8.0, 0), (6.0, 8.5, 1)):
        assert len(judge(LINES, allowed, {"/dev/a": [Interval(start, end)]}).wrong) == wrong, (start, end)


def test_prober_reports_each_change(tmp_path: Path) -> None:
    """A file that appears and vanishes stands for a device."""
    log, device = tmp_path / "log", tmp_path / "device"
    process = subprocess.Popen([sys.executable, prober.__file__, str(log), str(device), "/dev/null"])

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def has(opened: bool) -> bool:
        return any(line.get("device") == str(device) and line["open"] is opened for line in lines())

    try:
        for change, opened in ((device.touch, True), (device.unlink, False)):
            while not any("device" in line for line in lines()):
                time.sleep(0.01)
            change()
            while not has(opened):
                time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert spans(lines()).keys() == {str(device), "/dev/null"}
