"""`jupyter gpu watch` and `wait` with a real server, into a pipe and on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.cli.codes import DONE, INTERRUPTED, UNREACHABLE, WAITING
from jupyter_gpu.common.screen import ENTER, LEAVE
from tests.kernel.servers import SOFT, Server, await_, environment, serve

pytestmark = pytest.mark.usefixtures("give_back")

WATCH = [sys.executable, "-m", "jupyter_gpu.cli", "watch"]


class Screen:
    """A terminal that runs `watch`, and everything written on it."""

    def __init__(self, server: Server, columns: int, **env: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns)
        self._pieces: list[bytes] = []
        env = {**server.terminal, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **env}
        tty = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave}
        self.process = subprocess.Popen(WATCH, env=env, start_new_session=True, **tty)  # type: ignore[call-overload]
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # its end
            while piece := os.read(self.master, 65536):
                self._pieces.append(piece)

    @property
    def written(self) -> str:
        """Return everything written."""
        return b"".join(self._pieces).decode()

    @property
    def shown(self) -> list[str]:
        """Return the lines of the latest complete drawing."""
        last = [text for text in self.written.split("\x1b[H")[1:] if text.endswith("\x1b[J")][-1:]
        return re.sub("\x1b\\[[0-9;]*[mKJ]", "", last[0]).replace("\r", "").split("\n") if last else []

    def shows(self, text: str) -> None:
        """Wait until the drawing contains the text."""
        await_(lambda: any(text in line for line in self.shown))

    def resize(self, columns: int) -> None:
        """Resize the window, as a person does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))

    @property
    def echoes(self) -> bool:
        """Return whether typed characters are shown."""
        return bool(termios.tcgetattr(self.slave)[3] & termios.ECHO)

    def close(self) -> None:
        """Close the terminal at the end of a test."""
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        os.close(self.slave)
        self._reader.join()
        os.close(self.master)


@contextlib.contextmanager
def screen(server: Server, columns: int = 80, **env: str) -> Iterator[Screen]:
    """Return a terminal that runs `watch`."""
    made = Screen(server, columns, **env)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("inherited", [{}, {"COLUMNS": "80", "LINES": "24"}], ids=["plain", "JupyterLab's terminal"])
def test_terminal_shows_changes_and_is_restored(server: Server, inherited: dict[str, str]) -> None:
    """It follows changes, fits every width, shows nothing that is typed, and leaves the terminal as it was.

    JupyterLab sets ``COLUMNS`` when it opens a terminal, and never again.
    """
    with screen(server, 80, **inherited) as terminal:
        terminal.shows("0 of 4 GPUs attached")
        assert terminal.written.startswith(ENTER)
        assert not terminal.echoes
        os.write(terminal.master, b"typed")  # not just before the end: the kernel hears it a little later
        server.gpus(1.5)
        terminal.shows("1.5 of 4 GPUs attached")
        terminal.shows("0 B of 24 GiB")
        terminal.shows("0.5 of it · bank")
        assert max(map(len, terminal.shown)) == 80
        terminal.resize(40)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        await_(lambda: max(map(len, terminal.shown)) == 40)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(30) == INTERRUPTED
        assert terminal.echoes
        await_(lambda: terminal.written.endswith(LEAVE))
        assert "typed" not in terminal.written
        assert "Traceback" not in terminal.written


def test_watch_can_be_stopped_and_resumed(server: Server) -> None:
    """Ctrl-Z gives the terminal back, and resuming takes it again; an end by SIGTERM gives it back, too."""
    with screen(server, NO_COLOR="1") as terminal:
        terminal.shows("0 of 4")
        terminal.process.send_signal(signal.SIGTSTP)
        await_(lambda: terminal.written.endswith(LEAVE))
        assert terminal.echoes
        assert os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED) is not None
        terminal.process.send_signal(signal.SIGCONT)
        await_(lambda: terminal.written.count(ENTER) == 2)
        terminal.shows("0 of 4")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(30) == INTERRUPTED
        await_(lambda: terminal.written.endswith(LEAVE))
        assert not re.search("\x1b\\[[0-9]+m", terminal.written)


def test_dumb_terminal_gets_lines(server: Server) -> None:
    """It gets the same lines as a pipe, and no escape sequence."""
    with screen(server, TERM="dumb") as terminal:
        await_(lambda: "0 of 4 GPUs attached" in terminal.written)
        server.gpus(1)
        await_(lambda: "1 of 4 GPUs attached" in terminal.written)
        assert "\x1b" not in terminal.written


def test_watch_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    """While the server is away that is shown; when it is back, the watch continues."""
    port = "--ServerApp.port_retries=50"
    with contextlib.ExitStack() as stack:
        with serve(tmp_path, tmp_path / "state", SOFT, port) as first:
            terminal = stack.enter_context(screen(first, 100))
            terminal.shows("0 of 4")
        terminal.shows("It is tried again.")
        with serve(tmp_path, tmp_path / "state", SOFT, port) as second:
            await_(lambda: terminal.shown and not any("tried again" in line for line in terminal.shown))
            second.gpus(2)
            terminal.shows("2 of 4")
            second.gpus(0)


def test_pipe_gets_lines(server: Server) -> None:
    """Without a terminal there is one line for each change, and Ctrl-C ends it silently."""
    pipe = subprocess.PIPE
    with subprocess.Popen(WATCH, env=server.terminal, stdout=pipe, stderr=pipe, text=True) as watch:
        assert watch.stdout
        assert watch.stdout.readline().strip().endswith("  0 of 4 GPUs attached")
        server.gpus(1)
        line = ""
        while "1 of 4 GPUs attached · GPU 0" not in line:
            line = watch.stdout.readline()
        assert re.match(r"\d\d:\d\d:\d\d  ", line)
        watch.send_signal(signal.SIGINT)
        _, said = watch.communicate(timeout=30)
        assert (watch.returncode, said) == (INTERRUPTED, "")


def test_pipe_gets_lines_of_json(server: Server) -> None:
    """With --json each line is an object like that of `status --json`."""
    with subprocess.Popen([*WATCH, "--json"], env=server.terminal, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout
        first = json.loads(watch.stdout.readline())
        assert (first["phase"], first["sentence"]) == ("Idle", "0 of 4 GPUs attached")
        server.gpus(1)
        while json.loads(watch.stdout.readline())["phase"] != "Ready":
            pass
        watch.terminate()


def test_watch_ends_with_its_reader(server: Server) -> None:
    """`jupyter gpu watch | head -1` ends at once, not at the next change, and without a traceback."""
    shell = f"{sys.executable} -m jupyter_gpu.cli watch | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", shell], env=server.terminal, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (DONE, "")
    assert "0 of 4 GPUs attached" in done.stdout


def test_watch_without_a_server_fails(tmp_path: Path) -> None:
    """`watch` and `wait` say so at once, with exit code 5."""
    for command in ("watch", "wait"):
        words = [sys.executable, "-m", "jupyter_gpu.cli", command]
        done = subprocess.run(words, env=environment(tmp_path), capture_output=True, text=True, check=False)
        assert (done.returncode, "No Jupyter server was found" in done.stderr) == (UNREACHABLE, True)


def test_wait_ends_when_the_wish_is_met(server: Server, tmp_path: Path) -> None:
    """`wait` ends with 0 when a wish made elsewhere is met, with 3 at the timeout; it asks for nothing itself."""
    assert server.cli("wait").stdout.splitlines()[0] == "0 of 4 GPUs attached"
    with serve(tmp_path, server.folder / "state", SOFT) as other:
        other.gpus(3)
        server.gpus(2)
        assert server.cli("wait", "--timeout", "0.3").returncode == WAITING
        assert server.status()["amounts"]["requested"] == 2000
        with subprocess.Popen([*WATCH[:-1], "wait"], env=server.terminal, stdout=subprocess.PIPE, text=True) as waiting:
            with pytest.raises(subprocess.TimeoutExpired):
                waiting.wait(1)
            other.gpus(0)
            said, _ = waiting.communicate(timeout=30)
        assert (waiting.returncode, said.splitlines()[0]) == (DONE, "2 of 4 GPUs attached")
