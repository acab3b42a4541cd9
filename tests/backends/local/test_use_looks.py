"""A server records the use of its GPUs: closed, resting or working, with real processes and devices."""

import time
from pathlib import Path

import pytest

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.use_class import idle_shares

from .stage import Remote, Stage, states, wait_for

pytestmark = pytest.mark.root
LOOK, REST = 0.5, 2.0


def place(stage: Stage, server: Remote) -> Path:
    """Return the file of a server's record."""
    return stage.state / "pods" / f"{server.uid}.json"


def told(stage: Stage, server: Remote) -> tuple[list[int], list[int]]:
    """Return the indices of the GPUs that a record names as open, and as resting."""
    attached = Record.decode(place(stage, server).read_bytes()).attached
    uuids = stage.uuids
    opened, rests = (attached.open, attached.rests) if attached else ((), ())
    return sorted(map(uuids.index, opened)), sorted(map(uuids.index, rests))


def test_record_says_which_open_gpus_rest_and_a_shrink_takes_them_before_others(stage: Stage) -> None:
    """A record is written when a class changes, and not while all stays as it is; what is taken is named no more."""
    server, other = stage.server(look=LOOK, rest=REST), stage.server()
    waits, works = stage.kernel(server), stage.kernel(server)
    server.ask("request", milli=3000)
    works.ask("work")
    for kernel, index in ((waits, 1), (works, 2)):
        assert kernel.ask("open", path=stage.paths[index]) == ""
    wait_for(lambda: told(stage, server) == ([1, 2], []), "both to count as open")
    wait_for(lambda: told(stage, server) == ([1, 2], [1]), "the one to rest on which nothing runs")
    wait_for(lambda: server.ask("view")["attached"].get("rests") == [stage.uuids[1]], "the server's view to say so")
    idle = Record.decode(place(stage, server).read_bytes())
    assert [share.uuid for share in idle_shares(idle.allocated, idle.attached)] == stage.uuids[:2]
    version, heard = place(stage, server).stat().st_ino, other.ask("view")["version"]
    works.ask("rest")
    wait_for(lambda: told(stage, server) == ([1, 2], [1, 2]), "the other to rest, too")
    assert place(stage, server).stat().st_ino != version
    version = place(stage, server).stat().st_ino
    time.sleep(4 * LOOK)
    assert place(stage, server).stat().st_ino == version, "nothing changed, so nothing is written"
    assert other.ask("view")["version"] == heard
    works.ask("work")
    wait_for(lambda: told(stage, server) == ([1, 2], [1]), "its use to be recorded")
    assert states(server.ask("request", milli=2000)) == [(1, "attached"), (2, "attached")]
    assert sorted(states(server.ask("request", milli=1000))) == [(1, "draining"), (2, "attached")]
    assert told(stage, server) == ([2], [])
    works.ask("close", path=stage.paths[2])
    wait_for(lambda: told(stage, server) == ([], []), "it to count as closed")
    server.ask("request", milli=0)
    assert told(stage, server) == ([], [])
