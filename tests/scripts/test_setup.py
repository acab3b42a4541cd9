"""The steps that scripts share: done once, done again when something changed, never half."""

import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "scripts" / "lib" / "setup.sh"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with nothing but the library."""
    (tmp_path / "scripts" / "lib").mkdir(parents=True)
    shutil.copy(LIBRARY, tmp_path / "scripts" / "lib")
    (tmp_path / "input").write_text("one")
    return tmp_path


def bash(project: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code after sourcing the library."""
    command = ["bash", "-c", f". scripts/lib/setup.sh\n{code}"]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=60)


def times(project: Path, code: str) -> int:
    """Return how often `count` was called so far, after one more run of the code."""
    bash(project, "count() { echo x >>counted; }\n" + code)
    return len((project / "counted").read_text().split())


def test_done_step_is_not_repeated(project: Path) -> None:
    """The second run finds it done."""
    code = "once 'A step' input word -- count"
    assert times(project, code) == 1
    assert times(project, code) == 1


def test_changed_inputs_repeat_a_step(project: Path) -> None:
    """A changed file, a new file in a folder and another word each count."""
    assert times(project, "once 'A step' input word -- count") == 1
    (project / "input").write_text("two")
    assert times(project, "once 'A step' input word -- count") == 2
    assert times(project, "once 'A step' input other -- count") == 3
    (project / "folder").mkdir()
    assert times(project, "once 'A step' input folder -- count") == 4
    (project / "folder" / "new").write_text("")
    assert times(project, "once 'A step' input folder -- count") == 5


def test_failed_step_is_not_done(project: Path) -> None:
    """It ends the script, shows the end of its output and is tried again, even if it was done before."""
    assert bash(project, "once 'A step' input -- true").returncode == 0
    (project / "input").write_text("two")
    failed = bash(project, "once 'A step' input -- sh -c 'echo the reason; exit 3'\necho after")
    assert failed.returncode == 1
    assert "the reason" in failed.stderr
    assert "status 3" in failed.stderr
    assert "after" not in failed.stdout
    (project / "input").write_text("one")
    assert times(project, "once 'A step' input -- count") == 1


def test_step_prints_its_name_and_logs_its_output(project: Path) -> None:
    """One line goes to the terminal, the rest to the log."""
    done = bash(project, "step 'A step' sh -c 'echo much; echo more >&2'")
    assert done.stdout.startswith("A step ")
    assert done.stdout.count("\n") == 1
    assert (project / ".cache" / "log" / "A-step.log").read_text() == "much\nmore\n"


def test_missing_package_manager_is_explained(project: Path) -> None:
    """Nothing can be installed then, and the message says what to do."""
    failed = bash(project, "PATH=/nonexistent; apt_install 'Node.js' nodejs")
    assert failed.returncode == 1
    assert "Node.js is missing" in failed.stderr


def test_kubernetes_is_built_beside_other_steps(project: Path) -> None:
    """The script goes on while it is built, and the build here waits for that."""
    build = project / "build"
    build.write_text("#!/bin/sh\nuntil [ -e further ]; do sleep 0.01; done\necho $* >built\n")
    build.chmod(0o755)
    code = "kubernetes_is_built() { false; }\npython=$PWD/build\nbegin_kubernetes\ntouch further\nwait\ncat built"
    assert bash(project, code).stdout == "scripts/lib/cluster.py build\n"
