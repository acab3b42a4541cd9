"""Threads and GPUs of one program that need memory at the same time."""

import threading
from contextlib import ExitStack

from jupyter_gpu_node.shares.rules.protocol import Need

from .place import GPU, MIB, Place, Program
from .stub import Stub

OTHER = "GPU-00000000-0000-0000-0000-000000000002"


def _memory(place: Place, what: str, size: int, *, gpus: int = 1) -> Program:
    named = ",".join(f"{gpu}:1024" for gpu in (GPU, OTHER)[:gpus])
    env = place.env() | {"JUPYTER_GPU_STANDIN_GPUS": named}
    return Program([str(place.built.program("memory")), what, str(size)], env)


def test_free_memory_is_reported_while_another_thread_waits(place: Place) -> None:
    """The latest known figures are returned at once, even if the server never answers."""
    with place.stub() as stub, _memory(place, "info", 512 * MIB) as program:
        program.tell("look")
        connection = stub.accept()
        connection.limit, connection.others = 256 * MIB, 16 * MIB
        answered = 0
        while answered < 2:  # what it has, and the query
            answered += isinstance(connection.next(), Need)
        assert program.line() == f"{240 * MIB} {256 * MIB}"
        connection.answers = False
        program.tell("wait")
        connection.expect(Need, lambda need: need.size >= 512 * MIB)
        program.tell("look again")
        assert program.line() == f"{240 * MIB} {256 * MIB}"
        assert int(program.line()) < 500, "and not after the second that a server has for its word"


def test_gpu_without_a_server_does_not_delay_another(place: Place) -> None:
    """A thread waits for one GPU while the other serves its own."""
    with ExitStack() as stack:
        program = stack.enter_context(_memory(place, "two", MIB, gpus=2))
        with place.stub() as gone:
            lost = gone.accept()
            lost.next()
            lost.answers = False
            lost.expect(Need, lambda need: need.size >= MIB)
        stub = stack.enter_context(Stub(place.sockets / f"{OTHER}.sock"))
        program.tell("go on")
        connection = stub.accept()
        server = threading.Thread(target=connection.serve)
        server.start()
        assert program.line() == "allocated 0"
        program.kill()
        server.join()


def test_memory_taken_by_another_thread_is_requested_again(place: Place) -> None:
    """Sixteen threads within the limit are never refused, however often one takes what was granted to another."""
    with place.stub() as stub, _memory(place, "many", MIB) as program:
        connection = stub.accept()
        connection.limit = 64 * MIB
        connection.serve()
        assert program.lines() == ["refused 0"]
