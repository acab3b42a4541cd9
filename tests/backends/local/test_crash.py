"""Kill -9 between each two steps: the next server finds every GPU once, and opens none that is not granted."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu_node.devices import cgroup

from .stage import Remote, Stage, wait_for

pytestmark = pytest.mark.root

GROW = ("write:temporary", "decide:recorded", "rules:applied", "attach:recorded")
SHRINK = (*GROW, "scan:done")
CASES = [
    *(("start", point) for point in ("start:guarded", "start:recorded", "write:temporary")),
    *(("first grow", point) for point in GROW),
    *(("grow", point) for point in GROW),
    *(("shrink", point) for point in SHRINK),
    *(("shrink what is open", point) for point in SHRINK),
    *(("stop", point) for point in ("stop:released", "stop:left", "write:temporary", "scan:done")),
    *(("reap", point) for point in ("reap:emptied",)),
]


def test_every_point_has_a_case() -> None:
    """A new point without a test of what happens there is no use."""
    assert {point for _, point in CASES} == set(faults.POINTS)


def _dies(server: Remote, do: str, **arguments: object) -> None:
    """An actor that fails in any other way answers with its error; one that lives on never answers twice."""
    with contextlib.suppress(EOFError, ConnectionError):
        server.ask(do, **arguments)
        server.answer()  # what it does in the background may be what kills it
        pytest.fail("it came through alive")


@contextlib.contextmanager
def _crashed(stage: Stage, what: str, point: str) -> Iterator[Remote | None]:
    """A server was killed at ``point``; its kernel, which still runs, where it had one."""
    options = {"state_dir": str(stage.state), "simulated_gpus": stage.gpus}
    if what == "reap":
        stage.server().ask("request", milli=2000)
        stage.actors[-1].kill()
    server = stage.actor()
    if what in ("start", "reap"):
        server.ask("crash_at", point=point)
        _dies(server, "start", **options)
        yield None
        return
    stage.start(server)
    kernel = stage.kernel(server)
    if what != "first grow":
        path = server.ask("request", milli=2000)["gpus"][0]["path"]
        if what in ("shrink what is open", "stop"):
            assert kernel.ask("open", path=path) == ""
    server.ask("crash_at", point=point)
    if what == "stop":
        _dies(server, "stop")
    else:
        _dies(server, "request", milli={"first grow": 2000, "grow": 3000}.get(what, 0))
    yield kernel


@pytest.mark.parametrize(("what", "point"), CASES, ids=lambda word: word.replace(" ", "-"))
def test_kill_at_any_point_loses_no_gpu_and_shares_none(stage: Stage, what: str, point: str) -> None:
    """While the old kernel lives it and the new server's never can open the same GPU; after it all can be had again."""
    with _crashed(stage, what, point) as kernel:
        server = stage.server()
        server.ask("request", milli=3000)

        def as_listed() -> Any:
            """Return the paths that it can open once its view lists the same: it may get more at any moment."""
            found, told = server.ask("tries", paths=stage.paths), {gpu["path"] for gpu in server.ask("view")["gpus"]}
            return found == [path in told for path in stage.paths] and [found]

        (mine,) = wait_for(as_listed, "it to open what it says")
        if kernel is not None:
            theirs = kernel.ask("tries", paths=stage.paths)
            assert not any(a and b for a, b in zip(mine, theirs, strict=True))
            if what in ("shrink what is open", "stop"):
                assert sum(mine) < 3  # a descriptor of the old kernel is as good as an open
            kernel.kill()
        server.ask("until", phase="Ready", attached=3000)
        assert server.ask("tries", paths=stage.paths) == [True] * 3
        # An arbiter that the dead server was just starting is in its group until it leaves by itself.
        wait_for(lambda: sum(map(cgroup.populated, stage.groups())) == 1, "nothing of the dead server to be left")
        stage.server()  # any server that starts clears away the remains
        wait_for(lambda: len(list((stage.state / "pods").iterdir())) == 4, "records and sockets of two pods alone")
        assert len(stage.groups()) == 2


def test_kernels_of_a_killed_server_can_be_stopped_and_leave_no_group(stage: Stage) -> None:
    """The group of the dead pod disappears with its record, without root having to clean up."""
    first = stage.server()
    kernel = stage.kernel(first)
    first.ask("request", milli=1000)
    before = set(stage.groups())
    first.kill()
    kernel.kill()
    stage.server()
    wait_for(lambda: len(set(stage.groups()) & before) == 0, "the old group to be removed")
