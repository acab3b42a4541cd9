"""Run the parts of the test suite and say at the end what passed, what failed and what was not run.

Started by `scripts/test`, which makes what the parts need. Every part runs even if an earlier one failed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import TextIO
from xml.etree import ElementTree as ET

REPORTS = Path(".cache/reports")


@dataclass(frozen=True)
class Counts:
    """The numbers of tests of one part."""

    passed: int = 0
    failed: int = 0
    not_run: int = 0
    names: tuple[str, ...] = field(default=(), compare=False)
    """Names of the failed tests, if the report has them."""

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.passed + other.passed,
            self.failed + other.failed,
            self.not_run + other.not_run,
            self.names + other.names,
        )


def of_status(status: int, _: Path) -> Counts:
    """Count a part that is one test by its exit status."""
    return Counts(passed=int(status == 0), failed=int(status != 0))


def of_junit(_: int, report: Path) -> Counts:
    """Count from JUnit XML, as pytest and Playwright write it."""
    tree = ET.parse(report)
    suites = list(tree.iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(suite.get(key) or 0) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    cases = (
        case for case in tree.iter("testcase") if case.find("failure") is not None or case.find("error") is not None
    )
    names = (" ".join(filter(None, (case.get("classname"), case.get("name")))) for case in cases)
    return Counts(tests - failures - errors - skipped, failures + errors, skipped, tuple(dict.fromkeys(names)))


def of_jest(_: int, report: Path) -> Counts:
    """Count from `jest --json`; a file that does not compile counts as one failed test."""
    found = json.loads(report.read_text())
    failed = found["numFailedTests"] + found["numRuntimeErrorTestSuites"]
    cases = [case for file in found.get("testResults", ()) for case in file.get("assertionResults", ())]
    names = tuple(case["fullName"] for case in cases if case["status"] == "failed")
    return Counts(found["numPassedTests"], failed, found["numPendingTests"] + found["numTodoTests"], names)


@dataclass(frozen=True)
class Part:
    """A command that tests something, and the way to count its tests."""

    name: str
    command: Sequence[str]
    count: Callable[[int, Path], Counts] = of_status
    folder: str = "."
    """Its working directory."""
    beside: str = ""
    """Name of the part that it runs beside, if both are run; parts beside the same run one after another.

    Each has its own devices."""
    needs: str = ""
    """Name of the part that is run before it, named or not."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that it gets beside those of this process."""

    @property
    def report(self) -> Path:
        """Return the path of the command's report."""
        return (REPORTS / self.name).absolute()


@dataclass(frozen=True)
class Result:
    """The result of one part."""

    part: Part
    ok: bool
    counts: Counts
    seconds: float


PYTEST = ("pytest", "--dist=loadscope", "--no-loadscope-reorder", "--max-worker-restart=0", "--junitxml={report}")
"""Test files side by side, as most wait for processes that they start: three on any machine, as all use its devices, or
two that have a whole cluster each.

`tests/conftest.py` decides which tests make a group, and which groups come first. If a process of tests is killed, the
part ends as failed: xdist starts another one, but cannot give it the groups of the first, and may wait for ever."""

WHOLE = "tests/cluster/whole"
"""Tests that share one cluster with the product, and run one after another."""
BESIDE_TESTS = {"JUPYTER_GPU_FIRST_MINOR": "44"}
"""Device numbers 44 to 51, for two nodes: below are those of servers without a setting, above those of workers."""

ROOT = os.geteuid() == 0
IMAGES = "images" if ROOT else ""

PARTS = (
    Part("check", ["scripts/check"]),
    *([Part(IMAGES, ["scripts/images"], beside="check")] if ROOT else []),
    Part("jest", ["jlpm", "test", "--json", "--outputFile={report}"], of_jest, "labextension", "check"),
    Part(
        "pytest",
        [*PYTEST, "--numprocesses=3", "-m", "not cluster or plane", "--cov", "--cov-report="],
        of_junit,
    ),
    Part("ui", ["jlpm", "playwright", "test", "--reporter=list,junit"], of_junit, "labextension/ui-tests", "pytest"),
    Part("demo", ["scripts/demo", "--check"], beside="pytest"),
    Part(
        "product",
        ["pytest", "-m", "cluster and not plane", "--junitxml={report}", WHOLE],
        of_junit,
        beside="pytest",
        needs=IMAGES,
        environment=BESIDE_TESTS,
    ),
    *(
        [
            Part(
                "cluster-demo",
                ["scripts/demo", "--cluster", "--hub", "--check"],
                beside="pytest",
                needs=IMAGES,
                environment=BESIDE_TESTS,
            )
        ]
        if ROOT
        else []
    ),
    Part("coverage", ["coverage", "report", "--show-missing", "--skip-covered", "--fail-under=100"]),
    Part(
        "cluster",
        [*PYTEST, "--numprocesses=2", "-m", "cluster and not plane", f"--ignore={WHOLE}"],
        of_junit,
        needs=IMAGES,
    ),
)


def run(part: Part, output: TextIO | None = None) -> Result:
    """Run one part; its output goes to the terminal, or to ``output``.

    A part that wrote no report counts as one failed test.
    """
    started = time.monotonic()
    part.report.parent.mkdir(parents=True, exist_ok=True)
    part.report.unlink(missing_ok=True)
    command = [word.replace("{report}", str(part.report)) for word in part.command]
    environment = {**os.environ, **part.environment, "PLAYWRIGHT_JUNIT_OUTPUT_FILE": str(part.report)}
    status = subprocess.run(
        command, cwd=part.folder, env=environment, check=False, stdout=output, stderr=output and subprocess.STDOUT
    ).returncode
    try:
        counts = part.count(status, part.report)
    except (OSError, ET.ParseError, ValueError):
        print(f"{part.name} ended with status {status} and wrote no report of its tests.", file=sys.stderr)
        counts = Counts(failed=1)
    if status and not counts.failed:
        counts += Counts(failed=1)  # such as an error outside the tests
    return Result(part, status == 0 and not counts.failed, counts, time.monotonic() - started)


def run_together(leader: Part, others: Sequence[Part]) -> list[Result]:
    """Run a part and, beside it, others one after another.

    The output of ``others`` is printed when all have ended, so that lines do not mix.
    """
    told = f" (beside it {', '.join(other.name for other in others)})" if others else ""
    print(f"\n━━ {leader.name}{told}", flush=True)
    with ExitStack() as stack:
        outputs = [stack.enter_context(TemporaryFile("w+")) for _ in others]
        pool = stack.enter_context(ThreadPoolExecutor(1))
        running = [pool.submit(run, other, output) for other, output in zip(others, outputs, strict=True)]
        results = [run(leader)]
        for other, output, result in zip(others, outputs, running, strict=True):
            results.append(result.result())
            output.seek(0)
            print(f"\n━━ {other.name}", flush=True)
            shutil.copyfileobj(output, sys.stdout)
            sys.stdout.flush()
    return results


def summary(results: Sequence[Result], seconds: float) -> str:
    """Return a table of the parts, and the ``seconds`` that all took; the last line counts all tests."""
    lines = ["", f"{'part':<14}{'result':<10}{'passed':>8}{'failed':>8}{'not run':>9}{'seconds':>9}"]
    for result in results:
        counts = result.counts
        lines.append(
            f"{result.part.name:<14}{'passed' if result.ok else 'FAILED':<10}"
            f"{counts.passed:>8}{counts.failed:>8}{counts.not_run:>9}{result.seconds:>9.0f}"
        )
    total = sum((result.counts for result in results), Counts())
    lines.append(f"{'':<24}{'':>8}{'':>8}{'':>9}{seconds:>9.0f}\n")
    if total.not_run:
        lines.append(f"{total.not_run} tests were not run: what they need is not there; the reasons are above.")
    lines += [f"FAILED {result.part.name}: {name}" for result in results for name in result.counts.names]
    if os.geteuid() != 0:
        lines.append("This was not root: device rules of the operating system were not tested.")
    lines.append(f"{total.passed} passed, {total.failed} failed")
    return "\n".join(lines)


def selected(names: Sequence[str]) -> list[Part]:
    """Return the named parts and those that they need, in order; all of them if none is named."""
    wanted = {*names, *(part.needs for part in PARTS if part.name in names)}
    return [part for part in PARTS if not names or part.name in wanted]


def main() -> int:
    """Return 0 if every part passed."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(prog="scripts/test", description="Runs the tests; all parts, or those named.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(names))
    chosen = parser.parse_args().parts
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"there is no part {', '.join(unknown)}; parts are {', '.join(names)}")
    started = time.monotonic()
    parts = selected(chosen)
    leaders = [part for part in parts if part.beside not in [other.name for other in parts]]
    results: list[Result] = []
    for leader in leaders:
        results += run_together(leader, [part for part in parts if part.beside == leader.name])
    print(summary(results, time.monotonic() - started))
    return int(not all(result.ok for result in results))


if __name__ == "__main__":
    sys.exit(main())
