"""Processes that tests have started end with the tests' process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests import reaper
from tests.kernel.servers import await_

PROGRAM = """
import os, signal, subprocess, sys
from tests import reaper
kept = reaper.Reaper()
kept.start()
code = "import signal as s, time; s.signal(s.SIGTERM, s.{reaction}); print('ready', flush=True); time.sleep(600)"
words = [sys.executable, "-c", code]
child = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(os.environ[reaper.MARK], child.pid, flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.{how})
"""


@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
@pytest.mark.parametrize("reaction", ["SIG_DFL", "SIG_IGN"])
def test_children_end_with_a_process_that_is_killed_or_interrupted(how: str, reaction: str) -> None:
    """In sessions of their own, and even if they ignore the first signal; others go on."""
    program = PROGRAM.format(how=how, reaction=reaction)
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(["sleep", "600"]) as other,
        subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process,
    ):
        try:
            assert process.stdout
            value, child = process.stdout.readline().split()
            assert list(reaper.marked(value)) == [int(child)]
            process.communicate("\n")
            await_(lambda: not list(reaper.marked(value)))
            assert other.poll() is None
        finally:
            other.send_signal(signal.SIGKILL)
