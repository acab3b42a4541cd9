"""Users of one machine with limits: real servers of several user ids, real devices, one file of root's."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from jupyter_gpu.common import limits_file
from jupyter_gpu.model.view import LIMIT_LOWERED
from tests.backends.local.stage import Remote, Stage, wait_for
from tests.model.limits.test_machine_file import limit, text

pytestmark = pytest.mark.root

ANN, BOB = 12001, 12002
"""Numbers that the user database has no name for: limits name them by the number."""


def put(stage: Stage, *limits: dict[str, Any]) -> None:
    """Replace the file of root's."""
    limits_file.replace(stage.state / "limits.json", text(*limits).decode())


@pytest.fixture
def limited(stage: Stage) -> Stage:
    """Return a machine where ann may have two GPUs, and everybody else one."""
    stage.state.mkdir(mode=0o1777)
    stage.state.chmod(0o1777)
    put(stage, limit("User", str(ANN), max=2), limit("Default", max=1))
    stage.server()  # root's, which makes devices
    return stage


def server(stage: Stage, user: int) -> Remote:
    """Start a server of that user."""
    actor = stage.actor()
    actor.ask("become", user=user, reads=True)
    actor.ask("put", JUPYTERHUB_USER="root", USER="root", LOGNAME="root")  # what a user may pretend
    made = stage.server(actor)
    wait_for(lambda: view(made)["allocated"], "the limit")
    return made


def view(server: Remote) -> dict[str, Any]:
    """Return what a server's user sees."""
    found: dict[str, Any] = server.ask("view")
    return found


def until_limit(server: Remote, milli: int) -> None:
    """Wait until its slider ends there."""
    wait_for(lambda: view(server)["limit"] == milli, f"the slider to end at {milli}", 20)


def lowered(server: Remote) -> list[str]:
    """Return what it says about a lowered limit."""
    return [one["message"] for one in view(server)["conditions"] if one["type"] == LIMIT_LOWERED]


def test_servers_of_a_user_share_the_limit_and_others_have_their_own(limited: Stage) -> None:
    """Ann's two servers count together; a wish above is refused at once, and changes nothing."""
    first, second, bob = server(limited, ANN), server(limited, ANN), server(limited, BOB)
    assert [view(one)["limit"] for one in (first, second, bob)] == [2000, 2000, 1000]
    assert first.ask("request", milli=1000)["amounts"]["attached"] == 1000
    until_limit(second, 1000)
    with pytest.raises(RuntimeError, match=r"^LimitExceeded: Your limit is 2 GPUs, set for you by root on .*other"):
        second.ask("request", milli=2000)
    assert view(second)["requested"] is None
    with pytest.raises(RuntimeError, match=r"^LimitExceeded: Your limit is 1 GPU, the default for everyone"):
        bob.ask("request", milli=1500)
    assert bob.ask("request", milli=1000)["amounts"]["attached"] == 1000
    assert second.ask("request", milli=1000)["amounts"]["attached"] == 1000
    until_limit(first, 1000)
    first.kill()
    until_limit(second, 2000)


def test_change_of_the_file_moves_the_slider_and_takes_back_with_notice(limited: Stage) -> None:
    """An idle server hears of it as well; programs go on, and the wish is served again when the limit is raised."""
    ann, idle = server(limited, ANN), server(limited, ANN)
    kernel = limited.kernel(ann)
    ann.ask("request", milli=2000)
    used = next(path for path in limited.paths if kernel.ask("open", path=path) == "")
    put(limited, limit("User", str(ANN), max=1, grace="3s"))
    wait_for(lambda: lowered(ann), "the notice", 20)
    assert "1 GPU will be taken back at" in lowered(ann)[0]
    assert view(ann)["amounts"]["attached"] == 2000
    wait_for(lambda: view(ann)["amounts"]["allocated"] == 1000, "one to be taken back", 20)
    assert not lowered(ann)
    assert view(ann)["amounts"]["requested"] == 2000
    assert (view(ann)["phase"], view(ann)["reason"]) == ("Waiting", "LimitExceeded")
    until_limit(idle, 0)
    put(limited)
    wait_for(lambda: view(ann)["amounts"]["allocated"] == 2000, "both again", 20)
    until_limit(idle, 3000)
    kernel.ask("close", path=used)  # it was never closed by others


def test_guaranteed_gpus_are_taken_back_from_others_with_notice(limited: Stage) -> None:
    """The server that gives back hears of the request of another user's; it gets the GPU again when that is done."""
    limits = [limit("Default", grace="3s"), limit("User", str(BOB), guaranteed=1)]
    path = limited.state / "limits.json"
    limits_file.replace(path, json.dumps({"limits": limits, "reclaim": True}))
    ann, bob = server(limited, ANN), server(limited, BOB)
    assert ann.ask("request", milli=3000)["amounts"]["attached"] == 3000
    assert bob.ask("request", milli=1000)["amounts"]["attached"] == 0
    wait_for(lambda: lowered(ann), "the notice", 20)
    assert view(ann)["amounts"]["attached"] == 3000
    wait_for(lambda: view(bob)["amounts"]["attached"] == 1000, "the guaranteed GPU", 20)
    assert view(ann)["amounts"]["attached"] == 2000
    wait_for(lambda: not lowered(ann), "the end of the notice", 20)
    bob.ask("request", milli=0)
    wait_for(lambda: view(ann)["amounts"]["attached"] == 3000, "the GPU", 20)


def test_change_is_seen_within_a_moment(limited: Stage) -> None:
    """Nothing polls: the file system tells the servers."""
    ann = server(limited, ANN)
    begin = time.monotonic()
    put(limited, limit("User", str(ANN), max=3))
    until_limit(ann, 3000)
    assert time.monotonic() - begin < 5  # on a busy machine; the next look without the notice is ten seconds away


def test_bad_file_is_told_and_the_last_limits_hold(limited: Stage) -> None:
    """A user who could write it could lift the limit; new servers get nothing until it is put right."""
    ann = server(limited, ANN)
    path = limited.state / "limits.json"
    path.chmod(0o666)
    wait_for(lambda: "LimitsUnusable" in types(ann), "the complaint", 20)
    assert view(ann)["limit"] == 2000
    fresh = server(limited, ANN)
    assert view(fresh)["limit"] == 0
    with pytest.raises(RuntimeError, match=r"^LimitExceeded: .* cannot be read"):
        fresh.ask("request", milli=1000)
    path.chmod(0o644)
    until_limit(fresh, 2000)
    wait_for(lambda: "LimitsUnusable" not in types(ann), "the end of the complaint", 20)


def test_file_of_a_user_counts_for_nobody(stage: Stage) -> None:
    """Without root's file there are no limits; one that a user puts into root's state directory gives no GPU away."""
    stage.state.mkdir(mode=0o1777)
    stage.state.chmod(0o1777)
    bob = stage.server()
    assert view(bob)["allocated"] is None
    anns = stage.state / "of ann"
    anns.write_bytes(text(limit("Default", max="unlimited")))
    os.chown(anns, ANN, ANN)
    anns.rename(stage.state / "limits.json")
    wait_for(lambda: "LimitsUnusable" in types(bob), "the complaint", 20)
    until_limit(bob, 0)


def types(server: Remote) -> list[str]:
    """Return the types of its conditions."""
    return [one["type"] for one in view(server)["conditions"]]
