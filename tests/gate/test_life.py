"""Processes that fork, start others, use many threads, and end while they wait."""

import contextlib
import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Ask, Done, Revoke
from tests.shares.world import until

from .place import Place, Program
from .stub import LONG, Connection, Stub

KERNEL = (
    "import ctypes, os, sys\n"
    "d = ctypes.CDLL('libcuda.so.1'); c, m, f = (ctypes.c_void_p() for _ in range(3))\n"
    "d.cuInit(0); d.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0); d.cuCtxSetCurrent(c)\n"
    "d.cuModuleLoadData(ctypes.byref(m), b'x'); d.cuModuleGetFunction(ctypes.byref(f), m, b'k')\n"
)
"""The beginning of a Python program: `f` is a kernel of the driver `d`."""


def test_forked_child_starts_afresh_and_holds_no_connection(place: Place) -> None:
    """The driver refuses a child's launches at once; its parent's end is seen although the child lives on."""
    with place.stub() as stub, place.run("dlsym", "kernels:3:10", "sync", "fork:1", "wait-line") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        assert [program.line(), program.line()] == ["ready", "child 3"]
        program.process.kill()
        with pytest.raises(EOFError):
            connection.expect(Ask)


def test_child_of_a_parent_without_cuda_asks_for_itself(place: Place) -> None:
    """Workers of a data loader are such children."""
    with place.stub() as stub, place.run("dlsym", "fork-first", "kernels:3:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        assert program.lines()[-1] == "done"


def test_exec_closes_the_connection(place: Place) -> None:
    """The lease is free then."""
    with place.stub() as stub, place.run("dlsym", "kernels:1:10", "exec:cat") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        with pytest.raises(EOFError):
            connection.expect(Ask)
        assert program.process.poll() is None


def test_64_threads_with_their_own_streams_finish(place: Place) -> None:
    """All wait for one lease, and each launches all of its kernels."""
    with place.stub() as stub, place.run("dlsym", "threads:64:10") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        connection.serve()
        program.lines()
    assert place.sums().launches == 64 * 20


@pytest.mark.parametrize("lasts", [50_000, FOREVER])
def test_contexts_come_and_go(place: Place, lasts: int) -> None:
    """With or without work in them, destroyed contexts are forgotten."""
    with place.stub() as stub, place.run("dlsym", "contexts:8:100", "kernels:5:10", "sync") as program:
        connection = stub.accept()
        connection.serve(lasts)
        program.lines()
    assert place.sums().launches == 8 * 20 + 5


def test_process_ends_while_a_thread_waits(place: Place) -> None:
    """The end of main does not wait for a lease that never comes."""
    with place.stub() as stub, place.run("dlsym", "thread", "wait-line") as program:
        stub.accept().expect(Ask)
        program.tell("end")
        assert program.lines()[-1] == "done"


def test_directory_may_have_a_long_name(place: Place) -> None:
    """The socket's path may exceed the longest address."""
    place.sockets = place.folder / ("long-" * 40) / "sockets"
    place.sockets.mkdir(parents=True)
    (place.folder / "l").symlink_to(place.sockets)
    with Stub(place.folder / "l" / place.socket.name) as stub, place.run("dlsym", "kernels:3:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        assert program.lines()[-1] == "done"


def test_refused_program_prints_a_warning(place: Place) -> None:
    """It waits, as the server may accept it later, but says so."""
    with place.stub() as stub, place.run("dlsym", "kernels:1:10") as program:
        heard = threading.Thread(target=_refuse, args=(stub,))
        heard.start()
        assert program.process.stderr
        assert "it does not count as a program of that server" in program.process.stderr.readline()
        program.kill()
        stub.close()
        heard.join()
    assert place.launches() == 0


def _refuse(stub: Stub) -> None:
    with contextlib.suppress(OSError):
        while True:
            stub.accept().close()


def test_child_keeps_the_files_of_its_parent(place: Place) -> None:
    """This includes one with the number of the gate's socket, which the program had closed unknowingly."""
    program = KERNEL + (
        "assert d.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0\n"
        "print('launched', flush=True); sys.stdin.readline(); os.closerange(100, 1024)\n"
        "files = [os.open('/dev/null', os.O_RDWR) for _ in range(300)]\n"
        "child = os.fork()\n"
        "if not child: [os.fstat(one) for one in files]; os._exit(42)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    python = [str(Path("/proc/self/exe").resolve()), "-c", program]
    with place.stub() as stub, Program(python, place.env()) as running:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(60_000_000)
        assert running.line() == "launched"
        connection.expect(
            Done, lambda done: done.number == lease
        )  # its thread now only waits for messages of the server
        running.tell("go on")
        assert running.lines() == ["42"]


def test_signals_do_not_let_a_launch_through(place: Place) -> None:
    """With a timer every millisecond the launch keeps waiting."""
    with place.stub() as stub, place.run("dlsym", "alarms:1000", "kernels:3:10", "sync", "say:ended") as program:
        connection = stub.accept()
        connection.expect(Ask)
        for _ in range(200):
            os.kill(program.process.pid, signal.SIGALRM)
        assert place.sums().launches == 0
        connection.grant(FOREVER)
        assert "ended" in program.lines()


def test_program_that_closes_all_files_keeps_the_gate(place: Place) -> None:
    """A program that closes every descriptor, as daemons do, waits for its lease on a new connection."""
    program = KERNEL + (
        "launch = lambda: d.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, None, None, None)\n"
        "assert launch() == 0; os.closerange(100, 1024)\n"
        "files = [os.open('/dev/null', os.O_RDWR) for _ in range(300)]\n"
        "print('closed', flush=True); sys.stdin.readline(); assert launch() == 0; print('ended')\n"
    )
    python = [str(Path("/proc/self/exe").resolve()), "-c", program]
    with place.stub() as stub, Program(python, place.env()) as running:
        first = stub.accept()
        first.expect(Ask)
        lease = first.grant(60_000_000)
        assert running.line() == "closed"
        assert lease == 1
        with pytest.raises(EOFError):
            first.expect(Ask)
        running.tell("go on")
        again = stub.accept()
        again.expect(Ask)
        again.grant(FOREVER)
        assert running.lines() == ["ended"]


def test_idle_gate_notices_a_request_after_its_socket_was_replaced(place: Place) -> None:
    """Its thread polls the server while another, silent file has taken the number of its socket."""
    commands = ("kernels:1:10", "wait-line", "close-files", "kernels:1:10", "sync", "say:ended")
    with place.stub() as stub, place.run("dlsym", *commands) as program:
        first = stub.accept()
        first.expect(Ask)
        lease = first.grant(60_000_000)
        assert first.expect(Done, lambda done: done.number == lease).want is None
        time.sleep(0.1)  # its thread waits then
        program.tell("go on")
        again = stub.accept()
        again.expect(Ask)
        again.grant(FOREVER)
        assert program.lines() == ["ready", "ended", "done"]


def test_program_that_closes_the_files_during_a_lease_loses_it(place: Place) -> None:
    """The server takes the end of the connection for the end of the lease: nothing passes until there is a new one."""
    with place.stub() as stub, place.run("dlsym", "daemon:1000", "wait-line", "close-files", "wait-line") as program:
        first = stub.accept()
        first.until(lambda: place.launches() > 20)  # a lease that idles for a moment is given back, and asked for again
        program.tell("go on")
        first.ends()
        again = stub.accept()
        again.expect(Ask)
        launches = place.launches()
        time.sleep(0.1)  # nothing happens meanwhile, and nothing tells that
        assert place.launches() <= launches + 1  # one passed before the files were closed
        again.grant(60_000_000)
        again.until(lambda: place.launches() > launches + 20)


def test_thread_that_cannot_start_is_tried_again(place: Place) -> None:
    """Under a temporary limit the launch tells why it waits, and continues by itself."""
    with place.stub() as stub, place.run("dlsym", "wait-line", "kernels:3:10", "sync") as program:
        assert program.line() == "ready"
        pid, none = program.process.pid, resource.RLIM_INFINITY
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        resource.prlimit(pid, resource.RLIMIT_AS, ((pages + 64) * resource.getpagesize(), none))
        program.tell("go on")
        assert program.process.stderr
        assert "it cannot start the thread" in program.process.stderr.readline()
        resource.prlimit(pid, resource.RLIMIT_AS, (none, none))
        connection = stub.accept()
        connection.expect(Ask)
        connection.grant(FOREVER)
        assert program.lines() == ["done"]


def test_thread_may_be_cancelled_while_it_waits_for_a_lease(place: Place) -> None:
    """It ends and no longer counts: the next lease is given back for good."""
    with (
        place.stub() as stub,
        place.run("dlsym", "cancels:1:100000", "say:ended", "kernels:1:10", "wait-line") as program,
    ):
        connection = stub.accept()
        connection.expect(Ask)
        assert [program.line(), program.line()] == ["ready", "ended"]
        lease = connection.grant(60_000_000)
        assert connection.expect(Done, lambda done: done.number == lease).want is None


@pytest.mark.parametrize("lasts", [2000, 60_000_000], ids=["short leases", "a long lease"])
def test_threads_may_be_cancelled_at_any_moment(place: Place, lasts: int) -> None:
    """Cancelled while they launch, wait or send a message, they leave nothing locked or counted."""
    with place.stub() as stub, place.run("dlsym", "cancels:200:2000", "kernels:5:10", "sync", "wait-line") as program:
        connection = stub.accept()
        connection.expect(Ask)
        ended = threading.Event()
        reads = threading.Thread(target=_grants, args=(connection, lasts, ended))
        connection.grant(lasts)
        reads.start()
        try:
            assert program.line() == "ready"
            assert ended.wait(LONG)
        finally:
            program.kill()
            reads.join()


def _grants(connection: Connection, lasts: int, ended: threading.Event) -> None:
    """Grant leases until one is given back and no other is requested: cancelled threads are forgotten."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            if isinstance(message := connection.next(), Ask) or (
                isinstance(message, Done) and message.want is not None
            ):
                connection.grant(lasts)
            elif isinstance(message, Done) and connection.is_silent(1):
                ended.set()


@pytest.mark.parametrize(
    "work",
    [("destroyed:3000000",), ("map:2097152", "kernels:1:3000000", "unmap"), ("kernels:1:3000000", "reset")],
    ids=["a context", "a mapping", "a primary context"],
)
def test_server_is_heard_while_the_driver_waits(place: Place, work: tuple[str, ...]) -> None:
    """While the driver waits for the work of what it destroys, which may call the gate, the GPU is given back."""
    with place.stub() as stub, place.run("dlsym", *work, "say:ended", "wait-line", "kernels:3:10", "sync") as program:
        connection = stub.accept()
        connection.expect(Ask)
        lease = connection.grant(60_000_000)
        until(lambda: place.launches() > 0, "the first launch")
        time.sleep(0.2)  # it is in the driver then
        connection.say(Revoke(lease))
        assert connection.expect(Ask).keeps
        assert time.monotonic_ns() // 1000 < place.log()[0].end
        connection.expect(Done, lambda done: done.number == lease)
        assert place.log()[0].end <= time.monotonic_ns() // 1000
        reads = threading.Thread(target=connection.serve)
        reads.start()
        program.tell("go on")
        assert program.lines()[-1] == "done"
        reads.join()
