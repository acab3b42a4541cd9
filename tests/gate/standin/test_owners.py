"""The owners of a simulated GPU's work: overlaps, processes that end in the middle of it, and the log."""

import itertools
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.gate.standin.board import busy
from tests.gate.standin.conftest import FIRST, Machine
from tests.shares.world import until

READY = """
import sys
from tests.gate.standin.driver import *
start()
work = kernel(sys.argv[1] if len(sys.argv) > 1 else "work_us9000000")
"""
LAUNCH_WHEN_TOLD = f"{READY}\nfor line in sys.stdin:\n    launch(work)\n    print('launched', flush=True)"


def tell(program: subprocess.Popen[str]) -> None:
    """Have a program launch; return when it has."""
    assert program.stdin
    assert program.stdout
    program.stdin.write("launch\n")
    program.stdin.flush()
    assert program.stdout.readline() == "launched\n"


def end(*programs: subprocess.Popen[str]) -> None:
    """Close a program's input, so that it ends."""
    for program in programs:
        program.communicate(timeout=60)


def test_overlap_of_two_owners_is_seen(machine: Machine) -> None:
    """A launch while another owner's work is on the GPU is an overlap, and comes after that work."""
    one, two = machine.start(LAUNCH_WHEN_TOLD, OWNER="one"), machine.start(LAUNCH_WHEN_TOLD, OWNER="two")
    tell(one)
    tell(two)
    end(one, two)
    log = machine.board().log()
    assert [(work.owner, work.overlapped) for work in log] == [("one", False), ("two", True)]
    assert log[1].start == log[0].end
    assert machine.board().sums().overlaps == 1


def test_two_processes_of_one_owner_do_not_overlap(machine: Machine) -> None:
    """All processes of a share are one owner."""
    one, two = machine.start(LAUNCH_WHEN_TOLD, OWNER="share"), machine.start(LAUNCH_WHEN_TOLD, OWNER="share")
    tell(one)
    tell(two)
    end(one, two)
    first, second = machine.board().log()
    assert (first.pid, second.pid) == (one.pid, two.pid)
    assert {first.process, second.process} == {1, 2}
    assert machine.board().sums().overlaps == 0


def test_owners_that_take_turns_do_not_overlap(machine: Machine) -> None:
    """Work after the end of another owner's is no overlap; without a name the process is the owner."""
    program = f"{READY}\nlaunch(kernel('work_us1000')); call('cuCtxSynchronize')"
    for _ in range(3):
        machine.run(program)
    log = machine.board().log()
    assert machine.board().sums().overlaps == 0
    assert [work.owner for work in log] == [str(work.pid) for work in log]
    assert len({work.owner for work in log}) == 3


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_work_of_an_ended_process_is_dropped(machine: Machine, sign: signal.Signals) -> None:
    """Its queued minute of work is cut when the next owner launches: no overlap. Zombies count as ended."""
    one = machine.start(LAUNCH_WHEN_TOLD.replace("work_us9000000", "work_us30000000"), OWNER="one")
    two = machine.start(LAUNCH_WHEN_TOLD, OWNER="two")
    tell(one)
    tell(one)
    os.kill(one.pid, sign)
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and still waits to be reaped
    tell(two)
    end(two, one)
    log = machine.board().log()
    assert [(work.owner, work.overlapped, work.cut) for work in log] == [
        ("one", False, True),
        ("one", False, True),
        ("two", False, False),
    ]
    assert log[0].end == log[1].start == log[1].end == log[2].start
    assert machine.board().sums().busy == busy(log) < 30_000_000


def test_work_of_a_stopped_process_continues(machine: Machine) -> None:
    """As on a real GPU, what a stopped process launched still runs, and overlaps."""
    one = machine.start(LAUNCH_WHEN_TOLD.replace("work_us9000000", "work_us30000000"), OWNER="one")
    two = machine.start(LAUNCH_WHEN_TOLD, OWNER="two")
    tell(one)
    one.send_signal(signal.SIGSTOP)
    tell(two)
    one.send_signal(signal.SIGKILL)
    end(one, two)
    assert [work.overlapped for work in machine.board().log()] == [False, True]


def test_processes_killed_at_any_point_leave_the_board_whole(machine: Machine) -> None:
    """After forty busy programs are killed, the log has no half-written entry, and its sums are right."""
    program = f"{READY}\nprint('ready', flush=True)\nwhile True:\n    launch(work); memory()"
    for _ in range(10):
        storm = [machine.start(program.replace("work_us9000000", "work_us0"), OWNER=str(i)) for i in range(4)]
        for one in storm:
            assert one.stdout
            assert one.stdout.readline() == "ready\n"
        before = machine.board().sums().launches
        until(lambda before=before: machine.board().sums().launches >= before + 100, "a hundred launches")  # type: ignore[misc]
        for one in storm:
            one.kill()
        end(*storm)
    machine.run(f"{READY}\nlaunch(kernel('work_us7'))", OWNER="last")
    board = machine.board()
    sums = board.sums()
    log = board.log(max(0, sums.launches - 60_000))
    assert log[-1].owner == "last"
    assert log[-1].end - log[-1].start == 7
    assert all(before.end <= after.start for before, after in itertools.pairwise(log))
    assert {work.owner for work in log} <= {"0", "1", "2", "3", "last"}
    assert board.live() == {}


LOCK = f"""{READY}
import mmap, os, signal
board = mmap.mmap(os.open(os.environ["JUPYTER_GPU_STANDIN"] + "/{FIRST}.board", os.O_RDWR), 0)
lock = ctypes.byref(ctypes.c_char.from_buffer(board), 128)
print(ctypes.CDLL(None).pthread_mutex_lock(lock), flush=True)
"""


def test_process_killed_with_the_lock_delays_no_other(machine: Machine) -> None:
    """The next one gets the lock, and leaves it usable for those after it."""
    holder = machine.start(f"{LOCK}\nos.kill(os.getpid(), signal.SIGKILL)")
    end(holder)
    assert holder.returncode == -signal.SIGKILL
    machine.run(f"{READY}\nlaunch(work)")
    assert machine.run(LOCK + "ctypes.CDLL(None).pthread_mutex_unlock(lock)") == "0\n"
    assert len(machine.board().log()) == 1


def test_full_log_drops_the_oldest(machine: Machine) -> None:
    """The sums continue; asking for more than the log still has is an error."""
    machine.run(f"{READY}\nfor _ in range(20): launch(kernel('work_us3'))", LOG="8")
    board = machine.board()
    assert (board.sums().launches, board.sums().busy) == (20, 60)
    assert len(board.log(12)) == 8
    assert len(board.log(20)) == 0
    with pytest.raises(LookupError, match="keeps 8 launches and there were 20"):
        board.log()


def test_first_process_makes_the_board(machine: Machine) -> None:
    """Many programs start at once: none is lost, and nothing is left beside the boards."""
    programs = [machine.start(f"{READY}\nlaunch(work)", OWNER="share") for _ in range(12)]
    end(*programs)
    assert [program.returncode for program in programs] == [0] * 12
    assert len(machine.board().log()) == 12
    assert {work.process for work in machine.board().log()} == set(range(1, 13))
    assert all(file.suffix == ".board" for file in machine.boards.iterdir())


def test_file_that_is_no_board_is_refused(machine: Machine) -> None:
    """It is neither used nor overwritten, and the program gets an error."""
    machine.boards.mkdir()
    Path(machine.boards / f"{FIRST}.board").write_text("not a board")
    program = machine.start("from tests.gate.standin.driver import *\nprint(raw('cuInit', 0))")
    out, error = program.communicate(timeout=60)
    assert out == "999\n"
    assert "stand-in GPU" in error
    assert str(machine.boards) in error
    assert (machine.boards / f"{FIRST}.board").read_text() == "not a board"


def test_forked_child_cannot_continue(machine: Machine) -> None:
    """As with a real driver, what the parent had does not work in its child, and still does in the parent."""
    out = machine.run(
        f"""{READY}
import os
child = os.fork()
code = raw("cuCtxSynchronize") * 10 + raw("cuInit", 0)
if not child:
    os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
launch(work)
"""
    )
    assert out == "33\n"
    assert len(machine.board().log()) == 1
