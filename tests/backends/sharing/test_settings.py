"""Rules of time shares that are set for one machine: who may set them, what they do, and what a mistake costs."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.local.sharing import belief
from jupyter_gpu.backends.local.sharing.rules import NAME, Rules, parse
from jupyter_gpu.backends.local.sharing.seat import Seat
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.share_settings import Rules as Set
from jupyter_gpu_node.shares.offences import Penalties
from jupyter_gpu_node.shares.timing import Timing
from tests.backends.stage import Remote

from .machine import Machine
from .test_failures import offender
from .test_shares import HOG, share

DEFAULT = Timing()
BAD = "The rules of time shares can't be used."


def write(path: Path, value: Any, mode: int = 0o644) -> Path:
    """A file that replaces what was there in one step."""
    draft = path.with_suffix(".new")
    draft.write_text(value if isinstance(value, str) else json.dumps(value))
    draft.chmod(mode)
    return draft.replace(path)


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    """Of a state directory; the machine's own file is beside it."""
    (tmp_path / "state").mkdir()
    return Rules(tmp_path / "state", tmp_path / "machine.json")


# --- which file, whose --------------------------------------------------------------------------------------------


def test_without_a_file_the_defaults_hold(rules: Rules) -> None:
    """And nothing is wrong."""
    assert not rules.look()
    assert (rules.of("GPU-1"), rules.problem) == (Set(), "")


def test_this_host_and_this_gpu_have_rules_of_their_own(rules: Rules, tmp_path: Path) -> None:
    """So that one file does for many machines."""
    nodes = {socket.gethostname(): {"timing": {"lease": 9_000}}, "another": {"timing": {"lease": 8_000}}}
    write(tmp_path / "state" / NAME, {"nodes": nodes, "gpus": {"GPU-7": {"penalties": {"strikes": 2}}}})
    assert rules.look()
    assert rules.of("GPU-1") == Set(Timing(lease=9_000))
    assert rules.of("GPU-7") == Set(Timing(lease=9_000), penalties=Penalties(strikes=2))


@pytest.mark.root
def test_the_file_of_the_machine_alone_counts_where_there_is_one(rules: Rules, tmp_path: Path) -> None:
    """Even if it is a bad one; without it the state directory's does, and without both the defaults."""
    write(tmp_path / "state" / NAME, {"timing": {"savings": 1}})
    machine = write(tmp_path / "machine.json", {"timing": {"savings": 2}})
    assert rules.look()
    assert rules.of("GPU-1").timing.savings == 2
    write(machine, "[")
    assert not rules.look()
    assert (rules.of("GPU-1").timing.savings, str(machine) in rules.problem) == (2, True)
    machine.unlink()
    assert rules.look()
    assert (rules.of("GPU-1").timing.savings, rules.problem) == (1, "")
    (tmp_path / "state" / NAME).unlink()
    assert rules.look()
    assert rules.of("GPU-1").timing == DEFAULT


def test_a_mistake_changes_nothing_and_is_explained(rules: Rules, tmp_path: Path) -> None:
    """What was read before holds until the file is corrected."""
    path = write(tmp_path / "state" / NAME, {"timing": {"lease": 9_000}})
    assert rules.look()
    write(path, {"timing": {"lease": 8_000, "perod": 1}})
    assert not rules.look()
    assert rules.problem.startswith(f"{BAD} {path}: 'shares.timing': 'perod' is not known; known are expiry")
    assert rules.of("GPU-1").timing.lease == 9_000
    write(path, {"timing": {"lease": 9_000}})
    assert not rules.look()
    assert rules.problem == ""


def links(path: Path) -> None:
    """A link to a good file."""
    path.symlink_to(write(path.with_name("other.json"), {"timing": {"savings": 1}}))


def belongs_to_another(path: Path) -> None:
    """As a user of a shared state directory could make it."""
    os.chown(write(path, {"timing": {"savings": 1}}), 4321, -1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: write(path, {"timing": {"savings": 1}}, 0o664), "can be changed by others than its owner"),
        (lambda path: write(path, {"timing": {"savings": 1}}, 0o646), "can be changed by others than its owner"),
        (links, "is a link"),
        (Path.mkdir, "is no regular file"),
        (os.mkfifo, "is no regular file"),
        pytest.param(belongs_to_another, "belongs to user 4321 and must belong to user 0", marks=pytest.mark.root),
        (lambda path: write(path, " " * 2**21), "at most 1,048,576 are accepted"),
        (lambda path: write(path, ""), "not valid JSON"),
    ],
)
@pytest.mark.parametrize("where", [f"state/{NAME}", pytest.param("machine.json", marks=pytest.mark.root)])
def test_what_others_may_have_written_does_not_count(
    rules: Rules, tmp_path: Path, make: Any, words: str, where: str
) -> None:
    """Nobody sets the rules by which all share, but who owns the machine or the state directory."""
    make(tmp_path / where)
    assert not rules.look()
    assert words in rules.problem
    assert rules.problem.startswith(BAD)
    assert rules.of("GPU-1") == Set()


@pytest.mark.root
def test_the_owner_of_the_state_directory_may_set_them_there_alone(rules: Rules, tmp_path: Path) -> None:
    """For those without root; the file of the machine must be root's."""
    os.chown(tmp_path / "state", 4321, -1)
    belongs_to_another(tmp_path / "state" / NAME)
    assert rules.look()
    belongs_to_another(tmp_path / "machine.json")
    assert not rules.look()
    assert "must belong to user 0:" in rules.problem


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"enforce": False}, "'shares.enforce' can be changed in a cluster only"),
        ({"partMemory": True}, "'shares.partMemory' can be changed in a cluster only"),
        ({"timing": {"lease": 200_000}}, "f: 'shares.timing': least, lease and period"),
    ],
)
def test_what_cannot_be_set_on_one_machine_is_refused(value: Any, words: str) -> None:
    """It is not ignored in silence; its default may be said."""
    with pytest.raises(FieldError, match=words):
        parse(json.dumps(value).encode(), "f")
    assert parse(b'{"enforce": true, "partMemory": false}', "f").enforce


# --- by an arbiter ------------------------------------------------------------------------------------------------


def sample(machine: Machine, server: Remote) -> dict[str, Any]:
    """What the file of a share says; nothing while there is none."""
    found: dict[str, Any] = server.ask("sample").get("shares", {}).get(machine.uuids[0], {})
    return found


def quantum_and_cap(machine: Machine, server: Remote) -> tuple[int, int]:
    """Period of a share, and the most that its bank holds."""
    found = sample(machine, server)
    return found.get("period", 0), found.get("cap", -1)


def test_an_arbiter_begins_with_the_rules_that_were_set(machine: Machine) -> None:
    """Of this very GPU."""
    server = machine.server()
    own = {"timing": {"period": 50_000, "savings": 7}, "elastic": {"floor": 0.33}}
    write(machine.state / NAME, {"timing": {"savings": 3}, "gpus": {machine.uuids[0]: own}})
    server.ask("request", milli=500)
    machine.until(lambda: quantum_and_cap(machine, server) == (50_000, 7 * 25_000), "the rules in the share's file")
    machine.run(share(machine, 500), *HOG)
    machine.until(lambda: sample(machine, server)["effective"] == 165, "a third of a half to be left of what is unused")
    assert "have changed" not in machine.log()


def test_rules_are_changed_while_programs_run(machine: Machine) -> None:
    """The same process begins anew: programs wait a moment and go on, no two run at once, and savings stay."""
    first, second = share(machine, 250), share(machine, 750)
    program = machine.run(first, *HOG)
    machine.more(50)
    pid = machine.arbiter()
    saved = machine.until(lambda: sample(machine, second).get("balance", 0) >= 1_000_000, "savings")
    assert saved
    path = write(machine.state / NAME, {"timing": {"period": 200_000, "savings": 15}})
    machine.until(lambda: quantum_and_cap(machine, second) == (200_000, 15 * 150_000), "the new rules")
    assert sample(machine, second)["balance"] >= 1_000_000
    machine.more(200)
    machine.run(second, *HOG)
    machine.more(200)
    path.unlink()
    machine.until(lambda: quantum_and_cap(machine, second)[0] == DEFAULT.period, "the defaults")
    machine.more(200)
    assert not program.ended()
    assert machine.arbiter() == pid
    assert machine.sums().overlaps == 0
    assert machine.log().count("have changed") == 2


def test_who_has_the_whole_gpu_goes_on_when_rules_change(machine: Machine) -> None:
    """As when an arbiter is killed: with all of its work, and under the new one afterwards."""
    server = share(machine, 1000)
    program = machine.run(server, "kernels:3000:1000", "sync")
    machine.more(100)
    write(machine.state / NAME, {"timing": {"savings": 1}})
    machine.until(lambda: "have changed" in machine.log(), "the new rules")
    assert program.lines()[-1] == "done"
    assert machine.sums().launches == 3000
    machine.served(server)
    assert machine.run(server, "kernels:10:100", "sync").lines()[-1] == "done"


def test_a_bank_of_nothing_is_emptied(machine: Machine) -> None:
    """Who may save nothing from now on has nothing."""
    server = share(machine, 500)
    machine.until(lambda: sample(machine, server).get("balance", 0) > 0, "savings")
    write(machine.state / NAME, {"timing": {"savings": 0}})
    machine.until(lambda: quantum_and_cap(machine, server) == (100_000, 0), "the new rules")
    assert sample(machine, server)["balance"] == 0


def test_penalties_are_set_as_well(machine: Machine) -> None:
    """Here the first offence costs the share, which is told as ever."""
    server, other = machine.server(), machine.server()
    write(machine.state / NAME, {"penalties": {"strikes": 1}})
    for one in (server, other):
        one.ask("request", milli=500)
        machine.served(one)
    guilty = offender(machine, server)
    machine.run(other, *HOG)
    machine.until(guilty.ended, "the end of the offender")
    machine.until(lambda: "ShareTakenAway" in machine.conditions(server), "the verdict")


def test_a_bad_file_costs_nobody_anything_and_is_told(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """In the panel, and once in the logs of the arbiter and of the servers; programs do not even pause."""
    server = share(machine, 500)
    program = machine.run(server, *HOG)
    machine.more(50)
    path = write(machine.state / NAME, {"timing": {"period": 1}})
    user = os.geteuid()
    machine.until(lambda: belief.problem(machine.state, user), "the arbiter's words")
    assert belief.problem(machine.state, user).startswith(f"{BAD} {path}: 'shares.timing': period is 1; it must be")
    machine.until(lambda: BAD in machine.log(), "the log")
    machine.until(lambda: BAD in machine.conditions(server).get("ShareRulesNotUsed", ""), "the panel")
    seat = Seat(machine.state, "f" * 32, lambda _: None, lambda: None)
    try:
        for _ in range(2):
            seat.follow({machine.uuids[0]: 1})
    finally:
        seat.close(left=False)
    assert [record.getMessage() for record in caplog.records if BAD in record.getMessage()] == [seat.notice]
    machine.more(200)
    path.unlink()
    machine.until(lambda: not belief.problem(machine.state, user), "the end of the complaint")
    machine.until(lambda: "ShareRulesNotUsed" not in machine.conditions(server), "the panel to be silent")
    assert quantum_and_cap(machine, server)[0] == DEFAULT.period
    assert machine.log().count(BAD) == 1
    assert "have changed" not in machine.log()
    assert not program.ended()


@pytest.mark.parametrize("moment", ["written", "read"])
def test_an_arbiter_that_is_killed_while_rules_change(machine: Machine, moment: str) -> None:
    """The next one begins with the new ones: whoever had a share has it, and no two run at once."""
    first, second = share(machine, 250), share(machine, 750)
    programs = [machine.run(server, *HOG) for server in (first, second)]
    machine.more(50)
    pid = machine.arbiter()
    write(machine.state / NAME, {"timing": {"period": 200_000}})
    if moment == "read":
        machine.until(lambda: "have changed" in machine.log(), "the new rules")
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    machine.until(lambda: quantum_and_cap(machine, first)[0] == 200_000, "the new rules in the share's file")
    machine.more(200)
    assert not any(program.ended() for program in programs)
    assert machine.sums().overlaps == 0
