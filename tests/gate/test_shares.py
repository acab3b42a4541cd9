"""Programs of two shares and the real server: their work never overlaps on the GPU, also under sanitizers."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.shares.serve import Serving
from tests.shares.world import until

from .building import SANITIZERS, Built, build
from .place import GPU, MIB, Place, Program


@pytest.fixture(scope="session", params=list(SANITIZERS))
def sanitized(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Built:
    """Build the gate and the programs with the sanitizer."""
    return build(tmp_path_factory.mktemp(request.param), SANITIZERS[request.param])


@pytest.fixture
def server(short: Path) -> Iterator[Serving]:
    """Serve two halves of the GPU, with memory limits."""
    with Serving(short, grace=100_000) as serving:
        serving.set({GPU: {"one": (500, 256 * MIB), "two": (500, 256 * MIB)}})
        yield serving


def _run(place: Place, server: Serving, owner: str, *arguments: str) -> Program:
    return place.run("dlsym", *arguments, owner=owner, sockets=server.socket(GPU, owner).parent)


def _sanitized(place: Place, server: Serving, owner: str, *arguments: str) -> Program:
    return _sanitized_program(place, server, owner, "linked", "link", *arguments)


def _sanitized_program(place: Place, server: Serving, owner: str, name: str, *arguments: str) -> Program:
    env = place.env(owner, server.socket(GPU, owner).parent)
    env["TSAN_OPTIONS"] = "halt_on_error=1"
    env["ASAN_OPTIONS"] = "detect_leaks=0"  # what a process has at its end is freed with it
    return Program([str(place.built.program(name)), *arguments], env)


def test_two_shares_never_overlap(place: Place, server: Serving) -> None:
    """This holds for long kernels, short ones, graphs and many threads."""
    works = (
        ("kernels:300:1000", "sync"), ("kernels:20000:10", "sync"), ("threads:16:200", "graph:20:50", "sync"),
        ("contexts:6:500", "kernels:50:3000", "sync"),
    )  # fmt: skip
    running = [_run(place, server, owner, *work) for work in works for owner in ("one", "two")]
    for program in running:
        assert program.lines()[-1] == "done"
    assert place.sums().overlaps == 0


def test_lone_program_loses_nothing_between_launches(place: Place, server: Serving) -> None:
    """It runs far ahead of the GPU until a program of another share comes, and no further than any other then."""

    def queued() -> int:
        log = place.log(max(0, place.launches() - 100)) if place.board.exists() else []
        now = time.monotonic_ns() // 1000
        return sum(work.end > now for work in log if work.owner == "one")

    with _run(place, server, "one", "kernels:100000:1000"):
        until(lambda: queued() >= 12, "it does not run ahead")
        with _run(place, server, "two", "kernels:1:10", "sync", "say:there", "wait-line") as other:
            assert [other.line(), other.line()] == ["ready", "there"]
            assert max(queued() for _ in range(200)) <= 3
        until(lambda: queued() >= 12, "it does not run ahead")
    assert place.sums().overlaps == 0


def _die_after(launches: tuple[int, ...], place: Place, server: Serving) -> None:
    """Kill the server after so many launches, and start another one."""
    for number in launches:
        until(lambda number=number: place.launches() >= number, f"{number} launches")  # type: ignore[misc]
        server.kill()
        server.start()
        server.set({GPU: {"one": (500, 256 * MIB), "two": (500, 256 * MIB)}})


@pytest.mark.parametrize("behind", ["meets", "meets-behind"])
def test_program_that_waits_for_itself_continues(place: Place, server: Serving, behind: str) -> None:
    """A stream waits for what follows, 300 ms later, a launch on another stream after a revoke: it continues."""
    often = 3000 * ("kernels:1:20", "sync", "sleep:1000")
    with _run(place, server, "two", *often), _run(place, server, "one", f"{behind}:3:300") as one:
        assert one.lines()[-1] == "done"
    assert server.overdue() == []
    assert place.sums().overlaps == 0


def test_neighbour_does_not_wait_for_kernels_that_became_long(place: Place, server: Serving) -> None:
    """If short kernels take 60 ms each after an idle time, few are queued before that is known."""
    short = ("shaped:3000:10", "sync", "sleep:300")
    often = 400 * ("kernels:1:20", "sync", "sleep:2000")
    with _run(place, server, "two", *often), _run(place, server, "one", *(3 * short), "shaped:100:60000") as one:
        until(lambda: place.launches() > 9000 and _busy(place, "one", 60_000) >= 3)
        one.kill()
        begins = [work.start for work in place.log() if work.owner == "two"]
    assert max(later - sooner for sooner, later in pairwise(begins)) < 3_000_000
    assert server.overdue() == []
    assert place.sums().overlaps == 0


def _busy(place: Place, owner: str, duration: int) -> int:
    """Return how many launches of that duration have begun."""
    now = time.monotonic_ns() // 1000
    newest = place.log(max(0, place.launches() - 300))
    return sum(work.owner == owner and work.end - work.start >= duration and work.start < now for work in newest)


def test_server_killed_at_any_moment_causes_no_overlap(place: Place, server: Serving) -> None:
    """Programs wait for the next server and end normally; no two of them ever ran at once."""
    running = [_run(place, server, owner, "kernels:400:1000", "kernels:10000:10", "sync") for owner in ("one", "two")]
    _die_after((50, 200, 500, 2000), place, server)
    for program in running:
        assert program.lines()[-1] == "done"
    assert place.sums().overlaps == 0
    assert place.sums().launches == 2 * 10_400


def test_limit_applies_to_all_processes_of_a_share(place: Place, server: Serving) -> None:
    """It is kept to the byte, though processes first request more than they use; the memory of an ended one is free."""
    first = _run(
        place, server, "one", f"alloc:{100 * MIB}", "many:40:1048576", "say:full", "wait-line", "free", "wait-line"
    )
    said = [first.line() for _ in range(43)]
    assert said == ["ready"] + ["0"] * 41 + ["full"]
    with _run(place, server, "one", f"alloc:{116 * MIB}", "alloc:1") as second:
        assert second.lines() == ["ready", "0", "2", "done"]
    with _run(place, server, "one", f"alloc:{117 * MIB}") as third:
        assert third.lines() == ["ready", "2", "done"]
    first.kill()
    with _run(place, server, "one", f"alloc:{256 * MIB}") as last:
        assert last.lines() == ["ready", "0", "done"]


def test_share_becomes_a_whole_gpu_and_back(place: Place, server: Serving) -> None:
    """This happens while the program runs; none of its work is lost."""
    running = _run(place, server, "one", "kernels:600:1000", "kernels:20000:10", "sync")
    steps: tuple[tuple[int, dict[str, int | tuple[int, int]]], ...] = (
        (50, {"one": 1000}), (400, {"one": (500, 256 * MIB), "two": 500}), (900, {"one": 1000}),
    )  # fmt: skip
    for launches, shares in steps:
        until(lambda launches=launches: place.launches() >= launches, f"{launches} launches")  # type: ignore[misc]
        server.set({GPU: shares})
    assert running.lines()[-1] == "done"
    assert place.sums().launches == 20_600


@pytest.mark.parametrize(
    "arguments",
    [
        ("kernels:30:1000", "kernels:3000:10", "sync"), ("threads:64:10", "threads:8:1000"), ("contexts:6:100",),
        ("graph:20:10", "stream:20:100", "sync"), ("meets:3:50", "kernels:2000:10", "sync"),
        ("fork", "kernels:3:10", "fork", "sync"),
        ("trickle:200:4096", "words:200", "kernels:20:10", "trickle:200:4096", "sync"),
        (f"alloc:{MIB}", "many:200:4096", f"map:{4 * MIB}", "unmap", "array:64:64", "free", "info", "reset"),
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_sanitizers_find_nothing(sanitized: Built, short: Path, server: Serving, arguments: tuple[str, ...]) -> None:
    """Two processes of each share run with the address, undefined behaviour and thread sanitizers."""
    server.set({GPU: {"one": (500, 512 * MIB), "two": (500, 512 * MIB)}})  # both have a further context at a time
    place = Place(sanitized, short)
    running = [_sanitized(place, server, owner, *arguments) for owner in ("one", "two", "one", "two")]
    for program in running:
        assert program.lines()[-1] == "done"
    assert place.sums().overlaps == 0


@pytest.mark.parametrize("what", [("captures", "3"), ("threads", "300")], ids=lambda what: what[0])
def test_sanitizers_find_nothing_in_per_thread_default_streams(
    sanitized: Built, short: Path, server: Serving, what: tuple[str, ...]
) -> None:
    """Threads begin captures beside others' kernels, and threads come and go."""
    place = Place(sanitized, short)
    running = [_sanitized_program(place, server, owner, "streams", *what) for owner in ("one", "two")]
    for program in running:
        assert program.lines()[-1] == "done"
    assert place.sums().overlaps == 0


def test_thread_sanitizer_finds_nothing_while_servers_die(sanitized: Built, short: Path, server: Serving) -> None:
    """The end of a connection coincides with launches and allocations of many threads."""
    place = Place(sanitized, short)
    running = [_sanitized(place, server, owner, "threads:32:1000", f"alloc:{MIB}", "free") for owner in ("one", "two")]
    _die_after((20, 200), place, server)
    for program in running:
        assert program.lines()[-1] == "done"
    assert place.sums().overlaps == 0
