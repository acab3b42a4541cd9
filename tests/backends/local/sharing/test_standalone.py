"""An arbiter that an administrator has stand by: real processes of several users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from jupyter_gpu.backends.local.sharing import files, trust
from tests.backends.local.stage import PATIENCE

from .machine import Machine
from .test_shares import HOG
from .test_users import ONE, OTHER, share

pytestmark = pytest.mark.root
COMMAND = [sys.executable, "-P", "-m", "jupyter_gpu.backends.local.sharing"]


class Standing:
    """One that was started as a service would."""

    def __init__(self, machine: Machine, *before: str) -> None:
        self._log = machine.state.parent / "standing.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*before, *COMMAND, str(machine.state)], stderr=log, cwd="/")
        self.pid = self._process.pid

    def said(self) -> str:
        """Its log."""
        return self._log.read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its status."""
        self._process.send_signal(number)
        return self._process.wait(PATIENCE)


def test_it_takes_over_from_an_ordinary_user(roots: Machine) -> None:
    """Programs go on, one at a time, no pod depends on another user any more, and it ends when told."""
    first, second = share(roots, ONE, 500), share(roots, OTHER, 500)
    programs = [roots.run(server, *HOG) for server in (first, second)]
    roots.until(lambda: "ShareNotice" in roots.conditions(second), "the notice")
    roots.more(100)
    standing = Standing(roots)
    roots.until(lambda: trust.arbiter_user(roots.state) == 0, "root's arbiter")
    assert f"of user {ONE} is asked to leave" in standing.said()
    roots.until(lambda: "ShareNotice" not in roots.conditions(second), "the end of the notice")
    roots.until(lambda: trust.serving(roots.state) == {0}, "the lock")
    roots.more(300)
    assert not any(program.ended() for program in programs)
    assert roots.sums().overlaps == 0
    for program in programs:
        program.send(signal.SIGKILL)
    for server in (first, second):
        server.ask("request", milli=0)
    with_nobody = (files.home(roots.state, 0) / files.OWN / files.NOTIFY_SOCKET).stat
    begun = with_nobody().st_mtime_ns
    roots.until(lambda: with_nobody().st_mtime_ns > begun + 4 * 10**9, "four seconds in which nobody has a GPU")
    assert trust.arbiter_user(roots.state) == 0
    assert standing.end() == 0
    second.ask("request", milli=500)
    roots.until(lambda: trust.serving(roots.state) == {OTHER}, "the next one")


def test_arbiter_of_root_is_left_alone(roots: Machine) -> None:
    """A server of root has begun: it waits until that one ends, however it ends."""
    server = share(roots, 0, 500)
    program = roots.run(server, *HOG)
    pid = roots.arbiter()
    standing = Standing(roots)
    roots.until(lambda: "Waiting to hand out" in standing.said(), "it to wait")
    roots.more(1500)
    assert trust.server(roots.state) == pid
    server.kill()
    os.kill(pid, signal.SIGKILL)
    roots.until(lambda: trust.server(roots.state) == standing.pid, "its turn")
    roots.more(100)
    program.send(signal.SIGKILL)
    assert standing.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], "usage:"), (["/a", "-x"], "usage:"), (["a", "b", "c"], "usage:"), (["a", "b"], "usage:"),
        (["/dev/null/nowhere"], "can't be used"),
    ],
)  # fmt: skip
def test_unusable_state_directory_is_reported(arguments: list[str], words: str) -> None:
    """It says why, instead of a trace of where it failed."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_ordinary_user_is_refused(roots: Machine) -> None:
    """Other users would not rely on its arbiter, which would only keep better ones from their work."""
    actor = roots.actor()
    actor.ask("become", user=ONE, reads=True)
    roots.state.parent.chmod(0o777)  # where it writes what it says
    program = roots.start_program(actor, [*COMMAND, str(roots.state)])
    roots.until(program.ended, "its end")
    assert program.status == 2
    assert "it must run as root, or as the owner of the state directory" in program.out.read_text()
    assert trust.server(roots.state) == 0


def test_an_arbiter_serves_no_programs_that_it_cannot_see(roots: Machine) -> None:
    """In a pid namespace of its own, it cannot identify them: they wait, the reason is shown, and they go on later."""
    standing = Standing(roots, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    roots.until(lambda: trust.arbiter_user(roots.state) == 0, "an arbiter")
    server = share(roots, ONE, 500)
    roots.until(lambda: "another container" in roots.conditions(server).get("ShareServerMissing", ""), "the panel")
    program = roots.run(server, *HOG)
    roots.until(lambda: "process 0 connected and is not there" in standing.said(), "the refusal")
    assert roots.sums().launches == 0
    standing.end(signal.SIGKILL)
    roots.until(lambda: trust.serving(roots.state) == {ONE}, "one of its own")
    roots.more(100)
    roots.until(lambda: "ShareServerMissing" not in roots.conditions(server), "the panel")
    assert not program.ended()
