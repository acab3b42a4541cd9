"""`jupyter-gpu-node top` as a process, on files as servers write them, in a pipe and on a terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpu.common.screen import ENTER, LEAVE
from jupyter_gpu_node.kubelet import slot_records
from jupyter_gpu_node.kubelet.rules.slots import PodRef, SlotOwner
from jupyter_gpu_node.shares.rules.share_file import ShareFile
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.server.store import ShareEntry, ShareStore
from jupyter_gpu_node.top import files
from tests.node.top.test_view import SHARE
from tests.shares.serve import Serving
from tests.shares.world import programs

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "jupyter_gpu_node.command"]
PATIENCE = 60.0


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'node_plugin'}",
        "PYTHONIOENCODING": "utf-8",
        "TERM": "xterm",
        **more,
    }


def run(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def write(state: Path, gpu: str, pod: str, *, written: int | None = None, **changes: object) -> None:
    """Write a share as a server does, with the copy for the pod elsewhere."""
    share = replace(SHARE, uuid=gpu, **changes)  # type: ignore[arg-type]
    now = time.time_ns() // 1_000_000 if written is None else written
    entry = ShareEntry(gpu, pod, state / "slots" / pod, ShareFile(share, 0.5, now), (Deposit(9, 0),), 0)
    assert ShareStore(state).write([entry])


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """State directory of a node plugin with three shares of two GPUs."""
    for gpu, pod in (("GPU-1", "a"), ("GPU-1", "b"), ("GPU-2", "a")):
        write(tmp_path, gpu, pod)
    claims = {
        f"slot-{number}": SlotOwner(f"slot-{number}", PodRef("a", "team-a", "notebook"), "main") for number in range(2)
    }
    slot_records.save(tmp_path / "slots.json", slot_records.SlotRecord(claims, {}))
    return tmp_path


# --- in a pipe --------------------------------------------------------------------------------------------------------


def test_single_reading(state: Path) -> None:
    """Plain text: each share with its pod's name, the second of two readings, without colours."""
    done = run("top", "--once", "--interval", "0.2", "--state", state)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert re.search(r"^Time shares at \d\d:\d\d:\d\d: 2 GPUs, 3 shares$", done.stdout, re.MULTILINE)
    assert re.search(
        r"^  team-a/notebook +400/250 +│? +0% +██░░ 1\.2/2\.0 s", done.stdout.replace("│ ", "│"), re.MULTILINE
    )
    assert [line[:3] for line in done.stdout.split("\n")].count("  b") == 1
    assert done.stdout.count("Grew by 150") == 3


def test_json_output(state: Path) -> None:
    """One line of JSON an interval; the fields are those of the files."""
    done = run("top", "--once", "--json", "--interval", "0.2", "--state", state)
    body = json.loads(done.stdout)
    shares = [(one["uuid"], one["pod"], one["name"], one["balance"], one["rates"]["idle"]) for one in body["shares"]]
    assert shares == [
        ("GPU-1", "a", "team-a/notebook", 1_200_000, 0),
        ("GPU-1", "b", None, 1_200_000, 0),
        ("GPU-2", "a", "team-a/notebook", 1_200_000, 0),
    ]


def test_output_follows_the_files(state: Path) -> None:
    """Interval by interval; the reader may end it at any moment."""
    command = [*COMMAND, "top", "--json", "--interval", "0.2", "--state", str(state)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["shares"][1]["rates"] is None
        write(state, "GPU-1", "b", guaranteed=SHARE.guaranteed + 100_000)
        while not (rates := json.loads(process.stdout.readline())["shares"][1]["rates"])["guaranteed"]:
            pass
        assert rates["idle"] == 0
        process.stdout.close()
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read() == b""


def test_with_a_server_and_programs(tmp_path: Path) -> None:
    """Two programs that always have work share the GPU, a third share is not used: what is shown is so."""
    with Serving(tmp_path) as server:
        server.set({"GPU-1": {"a": 500, "b": 250, "c": 250}})
        command = [*COMMAND, "top", "--json", "--interval", "1", "--state", str(tmp_path / "state")]
        used = programs(server, tmp_path, "a", "b")
        with used, subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            while True:
                shares = {one["pod"]: one for one in json.loads(process.stdout.readline())["shares"]}
                rates = {pod: one["rates"] or {"waiting": 0} for pod, one in shares.items()}
                together = sum(rates[pod].get(name, 0) for pod in rates for name in ("guaranteed", "borrowed", "idle"))
                # their files may be of different moments
                if len(rates) == 3 and rates["a"]["waiting"] and rates["b"]["waiting"] and together <= 1.1:
                    break
            process.kill()
    assert {one["sharing"] for one in shares.values()} == {2}
    assert sum(rates["c"].values()) == 0
    assert shares["a"]["busy"] > 0


def test_nothing_to_show(tmp_path: Path) -> None:
    """A machine without shares is no error, a directory that is none is."""
    done = run("top", "--once", "--state", tmp_path)
    assert done.returncode == 0
    assert "No GPU is shared out on this machine now." in done.stdout
    done = run("top", "--once", "--state", tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"There is no directory {tmp_path}/nowhere; ")


@pytest.mark.parametrize("words", [("--interval", "0"), ("--interval", "nan"), ("--interval", "x"), ("--what",)])
def test_wrong_usage_is_reported(words: tuple[str, ...]) -> None:
    """In words, at once."""
    done = run("top", *words)
    assert done.returncode == 2
    assert "usage: jupyter-gpu-node top" in done.stderr


def test_command_needs_a_subcommand() -> None:
    """It lists them, and starts nothing by mistake."""
    assert (run("--help").returncode, run().returncode, run("stop").returncode) == (0, 2, 2)
    assert "top " in run("--help").stdout
    assert "--settings" in run("run", "--help").stdout


def test_top_loads_few_modules() -> None:
    """Neither the Kubernetes client nor a GPU's library is loaded: it also starts where they are missing."""
    code = "import sys; from jupyter_gpu_node import top; print(sorted({m.split('.')[0] for m in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert not {"kubernetes", "grpc", "pynvml", "tornado", "asyncio"} & set(re.findall(r"\w+", done.stdout))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_untrusted_files_are_left_out(state: Path) -> None:
    """Garbage, links, pipes, another GPU's file, an earlier version's: everything else is shown."""
    folder = state / "shares" / "GPU-1"
    good = (folder / "a.json").read_bytes()
    (folder / "b.json").write_bytes(good[:50])
    (folder / "c.json").symlink_to(folder / "a.json")
    os.mkfifo(folder / "d.json")
    (folder / "e.json").write_bytes(good.replace(b"GPU-1", b"GPU-7"))
    (folder / ".f.json").write_bytes(good)
    (folder / "g.json").write_text('{"allocated":250,"effective":400,"bank":3,"written":7}')
    (folder / "h.json").mkdir()
    (state / "shares" / "GPU-3").symlink_to(folder)
    (state / "slots.json").write_text("[1]")
    assert sorted(files.read([state])) == [("GPU-1", "a"), ("GPU-2", "a")]
    assert files.names([state], ["a"]) == {}


@pytest.mark.root
def test_files_of_other_users_are_ignored(state: Path) -> None:
    """The node plugin's files must be root's, or those of the user that reads."""
    os.chown(state / "shares", 12345, 12345)
    assert files.read([state]) == {}


def test_state_directory_of_one_machine(tmp_path: Path) -> None:
    """Arbiters of several users ran there: what was written last counts, and a user's folder is that user's own."""
    mine, other = tmp_path / "arbiters" / str(os.geteuid()) / "own", tmp_path / "arbiters" / "12345" / "own"
    pod = "0123456789abcdef" * 2
    write(mine, "GPU-1", pod, written=2_000)
    write(other, "GPU-1", pod, written=3_000, allocated=1)
    write(tmp_path, "GPU-1", pod, written=1_000, allocated=2)
    found = files.read([tmp_path])
    assert {key: file.share.allocated for key, file in found.items()} == {("GPU-1", pod): SHARE.allocated}
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods" / f"{pod}.json").write_text('{"server": {"pid": 4711, "started": 1}}')
    assert files.names([tmp_path], [pod, "b"]) == {pod: "01234567 pid 4711"}


# --- on a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """A terminal, and the text that a person sees on it."""

    def __init__(self, fd: int, process: subprocess.Popen[bytes]) -> None:
        self.fd = fd
        self.process = process
        self.shown = ""

    def read(self) -> bool:
        """Something more, if there is; False at the end."""
        ended = self.process.poll() is not None  # before: what it writes last is read as well
        if not select.select([self.fd], [], [], 0.05)[0]:
            return not ended
        try:
            self.shown += os.read(self.fd, 65536).decode()
        except OSError:  # the other end is closed
            return False
        return True

    def until(self, text: str, times: int = 1) -> None:
        """It is shown so often."""
        end = time.monotonic() + PATIENCE
        while self.shown.count(text) < times:
            assert self.read(), self.shown
            assert time.monotonic() < end, self.shown

    def end(self) -> int:
        """Return the exit status once it has ended."""
        while self.read():
            pass
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(
    state: Path, lines: int = 24, columns: int = 80, *, wish: tuple[str, str] = ("LANG", "C")
) -> Iterator[Terminal]:
    """`top` on a terminal of so many lines and columns, as its own session."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, "top", "--interval", "0.2", "--state", str(state)],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**dict([wish])), start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_ctrl_c_ends_it_cleanly(state: Path) -> None:
    """It draws over and over on a screen of its own, and leaves the terminal as it was."""
    with terminal(state) as seen:
        seen.until("\x1b[H", 3)
        seen.until("team-a/notebook", 4)
        os.write(seen.fd, b"\x03")
        assert seen.end() == 130
    assert seen.shown.startswith(ENTER)
    assert seen.shown.replace("^C", "").endswith(LEAVE)
    assert "\x1b[1m" in seen.shown
    assert "Traceback" not in seen.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(state: Path, number: signal.Signals) -> None:
    """As Ctrl-C does."""
    with terminal(state) as seen:
        seen.until("\x1b[H")
        seen.process.send_signal(number)
        assert seen.end() == 130
    assert seen.shown.endswith(LEAVE)


def test_no_colours_without_support(state: Path) -> None:
    """NO_COLOR, and a terminal that has none."""
    for wish in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with terminal(state, wish=wish) as seen:
            seen.until("\x1b[H", 2)
            assert not re.search(r"\x1b\[[0-9]*m", seen.shown)


def test_a_small_terminal(state: Path) -> None:
    """No more lines than it has: it must not scroll. Another size counts from the next refresh on."""
    with terminal(state, 6, 30) as seen:
        seen.until("more lines")
        frame = seen.shown.split("\x1b[H")[1]
        assert frame.count("\n") <= 5
        fcntl.ioctl(seen.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        seen.until("EXPIRES")
