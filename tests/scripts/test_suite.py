"""The test suite's runner counts honestly, and the tidiness check finds what it is for."""

import json
import sys
from pathlib import Path

import pytest

from jupyter_gpu_node.gpus.simulated import FIRST_MINOR
from scripts.lib import suite, tidy
from scripts.lib.suite import Counts, Part, Result
from tests import devices


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep reports of these tests apart from those of the run that they are part of."""
    monkeypatch.setattr(suite, "REPORTS", tmp_path)


def python(code: str) -> list[str]:
    """Return a command that runs `code`."""
    return [sys.executable, "-c", code]


JUNIT = '<testsuites><testsuite tests="7" failures="1" errors="2" skipped="1"/></testsuites>'


@pytest.mark.parametrize(
    ("part", "ok", "counts"),
    [
        (Part("good", python("")), True, Counts(passed=1)),
        (Part("bad", python("raise SystemExit(3)")), False, Counts(failed=1)),
        (Part("no report", python(""), suite.of_junit), False, Counts(failed=1)),
        (
            Part("junit", python(f"open('{{report}}', 'w').write('{JUNIT}'); exit(1)"), suite.of_junit),
            False,
            Counts(passed=3, failed=3, not_run=1),
        ),
        (
            Part(
                "all passed but the run broke",
                python("open('{report}', 'w').write('<testsuite tests=\"2\"/>'); exit(1)"),
                suite.of_junit,
            ),
            False,
            Counts(passed=2, failed=1),
        ),
        (
            Part("failed but ended with 0", python(f"open('{{report}}', 'w').write('{JUNIT}')"), suite.of_junit),
            False,
            Counts(passed=3, failed=3, not_run=1),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Part) else "",
)
def test_part_passes_only_if_status_report_and_counts_agree(part: Part, ok: bool, counts: Counts) -> None:
    """Whatever is missing counts as failed."""
    result = suite.run(part)
    assert (result.ok, result.counts) == (ok, counts)


MEET = """
import pathlib, sys, time
mine, its = map(pathlib.Path, sys.argv[1:])
mine.touch()
end = time.monotonic() + 30
while not its.exists():
    assert time.monotonic() < end
    time.sleep(0.01)
print(mine.name)
print(mine.name)
"""


def test_parts_run_concurrently_with_separate_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits here for the other, and each is counted separately."""
    one, two = tmp_path / "one", tmp_path / "two"
    leader = Part("one", [*python(MEET), str(one), str(two)])
    other = Part("two", [*python(f"{MEET}\nraise SystemExit(3)"), str(two), str(one)], beside="one")
    results = suite.run_together(leader, [other])
    assert [result.ok for result in results] == [True, False]
    assert capfd.readouterr().out.splitlines() == [
        "",
        "━━ one (beside it two)",
        "one",
        "one",
        "",
        "━━ two",
        "two",
        "two",
    ]


def test_parts_beside_another_run_one_after_another(tmp_path: Path) -> None:
    """The second sees that the first has ended, while their leader, which waits for both, still runs."""
    files = [tmp_path / name for name in ("one", "two")]
    leader = Part("leader", [*python(MEET), str(tmp_path / "leader"), str(files[1])])
    first = Part(
        "one", [*python("import pathlib, sys, time; time.sleep(0.2); pathlib.Path(sys.argv[1]).touch()"), str(files[0])]
    )
    second = Part(
        "two",
        [
            *python(
                "import pathlib, sys; one, two = map(pathlib.Path, sys.argv[1:]); assert one.exists(); two.touch()"
            ),
            *map(str, files),
        ],
    )
    assert [result.ok for result in suite.run_together(leader, [first, second])] == [True, True, True]


def test_prerequisites_run_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run whether or not they are named; nothing else does."""
    parts = (Part("check", []), Part("images", [], beside="check"), Part("cluster", [], needs="images"))
    monkeypatch.setattr(suite, "PARTS", parts)
    for names, found in (["cluster"], parts[1:]), (["check"], parts[:1]), (["cluster", "check"], parts), ([], parts):
        assert suite.selected(names) == list(found)


def test_cluster_beside_tests_has_device_numbers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the tests' workers nor servers without a setting have any of them, and its two nodes have all."""
    first = int(suite.BESIDE_TESTS["JUPYTER_GPU_FIRST_MINOR"])
    cluster = set(range(first, first + 2 * devices.EACH))
    command = next(part.command for part in suite.PARTS if part.name == "pytest")
    (workers,) = (int(word.partition("=")[2]) for word in command if word.startswith("--numprocesses="))
    for number in range(workers):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        assert not cluster & set(range(devices.first_minor(), devices.first_minor() + devices.EACH))
    assert not cluster & set(range(FIRST_MINOR, FIRST_MINOR + devices.EACH))


def test_jest_file_that_does_not_compile_is_a_failure(tmp_path: Path) -> None:
    """It has no tests."""
    report = tmp_path / "jest"
    found = {"numPassedTests": 5, "numFailedTests": 1, "numRuntimeErrorTestSuites": 1}
    report.write_text(json.dumps({**found, "numPendingTests": 2, "numTodoTests": 1}))
    assert suite.of_jest(1, report) == Counts(passed=5, failed=2, not_run=3)


def test_last_line_counts_everything() -> None:
    """Tests that were not run are listed, and do not count as passed."""
    part = Part("one", [])
    text = suite.summary([Result(part, True, Counts(3, 0, 2), 1.0), Result(part, False, Counts(1, 1), 2.0)], 2.5)
    assert text.splitlines()[-1] == "4 passed, 1 failed"
    assert "2 tests were not run" in text
    assert "FAILED" in text


def test_summary_names_the_failed_tests(tmp_path: Path) -> None:
    """It uses the names of JUnit and Jest, so that the end of a long log says where to look."""
    junit, jest = tmp_path / "junit", tmp_path / "jest"
    cases = '<testcase classname="a.py" name="one"><failure/></testcase><testcase name="two"/>'
    junit.write_text(
        f'<testsuite tests="3" failures="1" errors="1">{cases}<testcase name="three"><error/></testcase></testsuite>'
    )
    tests = [{"fullName": "four", "status": "failed"}, {"fullName": "five", "status": "passed"}]
    counts = {"numPassedTests": 1, "numFailedTests": 1, "numRuntimeErrorTestSuites": 0, "numPendingTests": 0}
    jest.write_text(json.dumps({**counts, "numTodoTests": 0, "testResults": [{"assertionResults": tests}]}))
    assert suite.of_junit(1, junit).names == ("a.py one", "three")
    assert suite.of_jest(1, jest).names == ("four",)
    text = suite.summary([Result(Part("ui", []), False, suite.of_junit(1, junit), 1.0)], 1.0)
    assert "FAILED ui: a.py one\nFAILED ui: three\n" in text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open('/" + "work/main')", "a path of one machine"),
        ("see /" + "root/x", "a path of one machine"),
        ("# TO" + "DO: more", "an unfinished thing"),
        ("<" * 7 + " HEAD", "a merge conflict"),
    ],
)
def test_tidy_finds_each_forbidden_text(text: str, found: str) -> None:
    """The finding has its line."""
    (finding,) = tidy.findings(Path("a.md"), f"first line\n{text}\n")
    assert finding.startswith("a.md:2: ")
    assert found in finding


@pytest.mark.parametrize("text", ["https://example.org/work/x", "lab.work/demo", "a network/root/thing", "${x}/root/y"])
def test_tidy_ignores_other_paths(text: str) -> None:
    """Only paths from the root of the file system count."""
    assert not list(tidy.findings(Path("a.md"), text))


def test_tidy_finds_names_with_a_space() -> None:
    """A file that a shell made by mistake is not taken for one of ours."""
    (finding,) = tidy.findings(Path("9 files"), "")
    assert finding.startswith("9 files:1: ")


def test_tidy_measures_files_and_functions() -> None:
    """Those exactly at the limits pass."""
    body = "    x = 1\n" * 80
    assert not list(tidy.findings(Path("a.py"), "def f():\n" + body[:-10]))
    (finding,) = tidy.findings(Path("a.py"), "def f():\n" + body)
    assert finding == "a.py:1: f() has 81 lines, more than 80"
    assert not list(tidy.findings(Path("a.ts"), "x\n" * 600))
    assert list(tidy.findings(Path("a.ts"), "x\n" * 601)) == ["a.ts:1: has 601 lines, more than 600"]
    assert not list(tidy.findings(Path("a.json"), "x\n" * 601))


def test_tidy_continues_after_a_syntax_error() -> None:
    """It is one more finding."""
    assert list(tidy.findings(Path("a.py"), "x = 1\n  y = 2\n")) == ["a.py:2: unexpected indent"]
