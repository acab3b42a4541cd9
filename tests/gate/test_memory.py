"""Memory: counted by the server, refused above the limit, shown to the program."""

from collections.abc import Callable

import pytest

from jupyter_gpu_node.shares.rules.protocol import Ask

from .place import MIB, Place, Program
from .stub import Connection

OUT_OF_MEMORY = "2"


def _with_limit(place: Place, limit: int, *arguments: str) -> tuple[list[str], Connection]:
    """Return the output of a program of a share with this limit, and its connection."""
    with place.stub() as stub, place.run("dlsym", *arguments) as program:
        connection = _until_it_ends(stub.accept(), program, limit)
        return program.lines(), connection


def _until_it_ends(connection: Connection, program: Program, limit: int) -> Connection:
    connection.limit = limit
    connection.serve()
    return connection


@pytest.mark.parametrize(
    "function",
    ["cuMemAlloc_v2", "cuMemAllocManaged", "cuMemAllocPitch_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "map"],
)
def test_limit_is_kept_to_the_byte(either: Place, function: str) -> None:
    """All of it can be had, and not one byte more; the refusal is the driver's usual error."""
    whole, more = f"{function}:{64 * MIB}", "alloc:1"
    said, _ = _with_limit(either, 64 * MIB, whole, more)
    assert said == ["ready", "0", OUT_OF_MEMORY, "done"]


def test_freed_memory_can_be_had_again(place: Place) -> None:
    """This holds for plain, pooled and mapped memory, and after a reset."""
    size = 40 * MIB
    for take, give in (("alloc", "free"), ("cuMemAllocAsync", "free-async"), ("map", "unmap"), ("alloc", "reset")):
        arguments = (f"{take}:{size}", f"{take}:{size}" if take != "map" else f"alloc:{size}", give, f"{take}:{size}")
        said, _ = _with_limit(place, 64 * MIB, *arguments)
        assert said == ["ready", "0", OUT_OF_MEMORY, "0", "done"], take


def test_mapping_counts_after_its_handle_is_released(place: Place) -> None:
    """The memory is still there, so it cannot be had a second time."""
    said, _ = _with_limit(place, 64 * MIB, f"map:{40 * MIB}", f"map:{40 * MIB}", "unmap", f"map:{40 * MIB}")
    assert said == ["ready", "0", OUT_OF_MEMORY, "0", "done"]


def test_arrays_count(place: Place) -> None:
    """1024 times 1024 floats are 4 MiB."""
    said, _ = _with_limit(place, 4 * MIB, "array:1024:1024", "array:1024:1025", f"alloc:{4 * MIB}")
    assert said == ["ready", "0", OUT_OF_MEMORY, "0", "done"]


def test_packed_arrays_count_their_real_size(place: Place) -> None:
    """Four channels of 8 bits in one format are 4 bytes, not 16."""
    said, _ = _with_limit(place, 4 * MIB, "packed:1024:1024", "packed:1:1")
    assert said == ["ready", "0", OUT_OF_MEMORY, "done"]


def test_imported_memory_counts(either: Place) -> None:
    """Memory that only its import holds counts after the original handle is released, and no longer than that."""
    said, _ = _with_limit(either, 64 * MIB, f"import:{40 * MIB}", f"alloc:{40 * MIB}", "import", f"alloc:{40 * MIB}")
    assert said == ["ready", "0", OUT_OF_MEMORY, "0", "done"]


def test_small_allocations_seldom_ask(place: Place) -> None:
    """A thousand of 4 KiB take a few requests, far from the limit."""
    said, connection = _with_limit(place, 1024 * MIB, "many:1000:4096")
    assert said[1:-1] == ["0"] * 1000
    assert len(connection.needs) < 100  # unused memory is given back after a while: a slow program asks again


def test_program_sees_its_limit(place: Place) -> None:
    """The limit is its total; a share without a limit sees the whole GPU."""
    said, _ = _with_limit(place, 64 * MIB, "alloc:1048576", "info", "total")
    assert said[2:4] == [f"{63 * MIB} {64 * MIB}", f"{64 * MIB}"]
    said, _ = _with_limit(place, 2**64 - 1, "alloc:1048576", "info", "total")
    assert said[2:4] == [f"{1023 * MIB} {1024 * MIB}", f"{1024 * MIB}"]


def test_memory_of_other_processes_of_the_share_counts(place: Place) -> None:
    """Memory that the server reports for them is not free."""
    with (
        place.stub() as stub,
        place.run("dlsym", "info", f"alloc:{32 * MIB}", f"alloc:{MIB}", f"alloc:{MIB}") as program,
    ):
        connection = stub.accept()
        connection.others = 31 * MIB
        _until_it_ends(connection, program, 64 * MIB)
        assert program.lines() == ["ready", f"{33 * MIB} {64 * MIB}", "0", "0", OUT_OF_MEMORY, "done"]


def test_restarted_server_learns_the_allocated_memory(place: Place) -> None:
    """The first message of the new connection reports it; nothing more is granted above the limit."""
    with place.run("dlsym", f"alloc:{60 * MIB}", "wait-line", f"alloc:{MIB}", "free", f"alloc:{MIB}") as program:
        with place.stub() as stub:
            connection = stub.accept()
            connection.limit = 64 * MIB
            _answer_until(connection, lambda: connection.size >= 60 * MIB)
            assert [program.line(), program.line()] == ["ready", "0"]
        with place.stub() as stub:
            connection = stub.accept()
            connection.limit = 32 * MIB
            connection.next()
            assert connection.needs == [60 * MIB]
            program.tell("go on")
            connection.serve()
            assert program.lines() == [OUT_OF_MEMORY, "0", "done"]


def _answer_until(connection: Connection, enough: Callable[[], bool]) -> None:
    while not enough():
        assert not isinstance(connection.next(), Ask)
