"""Rules of time shares that are set for one machine: which users may set them, what they do, and what a mistake
costs."""

from __future__ import annotations

import json
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.local.processes.identity import boot
from jupyter_gpu.backends.local.sharing import files, gpu_memory, last_rules, trust
from jupyter_gpu.backends.local.sharing.gpu_memory import GpuMemory
from jupyter_gpu.backends.local.sharing.machine_rules import NAME, POINTS, SETTLE, MachineRules, parse
from jupyter_gpu.backends.local.sharing.pod_client import PodClient
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_node.shares.rules.gpu_settings import GpuRules as Set
from jupyter_gpu_node.shares.rules.settings import ShareSettings
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from tests.backends.local.stage import Remote

from .machine import MEMORY, MIB, Machine
from .test_failures import start_violator
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
def rules(tmp_path: Path) -> MachineRules:
    """Make the rules of a state directory; the machine's own file is beside it."""
    (tmp_path / "state").mkdir()
    return MachineRules(tmp_path / "state", tmp_path / "machine.json")


# --- which file, whose --------------------------------------------------------------------------------------------


def test_without_a_file_the_defaults_hold(rules: MachineRules) -> None:
    """There is no problem then."""
    assert not rules.reload()
    assert (rules.of("GPU-1"), rules.problem) == (Set(), "")


def test_this_host_and_this_gpu_have_rules_of_their_own(rules: MachineRules, tmp_path: Path) -> None:
    """One file does for many machines."""
    nodes = {socket.gethostname(): {"timing": {"lease": 9_000}}, "another": {"timing": {"lease": 8_000}}}
    write(tmp_path / "state" / NAME, {"nodes": nodes, "gpus": {"GPU-7": {"penalties": {"strikes": 2}}}})
    assert rules.reload()
    assert rules.of("GPU-1") == Set(Timing(lease=9_000))
    assert rules.of("GPU-7") == Set(Timing(lease=9_000), penalties=Penalties(strikes=2))


@pytest.mark.root
def test_the_file_of_the_machine_alone_counts_where_there_is_one(rules: MachineRules, tmp_path: Path) -> None:
    """Even if it is a bad one; without it the state directory's does, and without both the defaults."""
    write(tmp_path / "state" / NAME, {"timing": {"savings": 1}})
    machine = write(tmp_path / "machine.json", {"timing": {"savings": 2}})
    assert rules.reload()
    assert rules.of("GPU-1").timing.savings == 2
    write(machine, "[")
    assert not rules.reload()
    assert (rules.of("GPU-1").timing.savings, str(machine) in rules.problem) == (2, True)
    machine.unlink()
    assert rules.reload()
    assert (rules.of("GPU-1").timing.savings, rules.problem) == (1, "")
    (tmp_path / "state" / NAME).unlink()
    assert rules.reload()
    assert rules.of("GPU-1").timing == DEFAULT


def test_a_mistake_changes_nothing_and_is_explained(rules: MachineRules, tmp_path: Path) -> None:
    """The rules that were read before hold until the file is corrected."""
    path = write(tmp_path / "state" / NAME, {"timing": {"lease": 9_000}})
    assert rules.reload()
    write(path, {"timing": {"lease": 8_000, "perod": 1}})
    assert not rules.reload()
    assert rules.problem.startswith(f"{BAD} {path}: 'shares.timing': 'perod' is not known; known are expiry")
    assert rules.of("GPU-1").timing.lease == 9_000
    write(path, {"timing": {"lease": 9_000}})
    assert not rules.reload()
    assert rules.problem == ""


def links(path: Path) -> None:
    """A link to a good file."""
    path.symlink_to(write(path.with_name("other.json"), {"timing": {"savings": 1}}))


def belongs_to_another(path: Path) -> None:
    """Give the file to another user, as in a shared state directory."""
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
def test_file_of_another_user_does_not_count(
    rules: MachineRules, tmp_path: Path, make: Any, words: str, where: str
) -> None:
    """Only the owner of the machine or of the state directory sets the rules by which all share."""
    make(tmp_path / where)
    assert not rules.reload()
    assert words in rules.problem
    assert rules.problem.startswith(BAD)
    assert rules.of("GPU-1") == Set()


@pytest.mark.root
def test_the_owner_of_the_state_directory_may_set_them_there_alone(rules: MachineRules, tmp_path: Path) -> None:
    """For those without root; the file of the machine must be root's."""
    os.chown(tmp_path / "state", 4321, -1)
    belongs_to_another(tmp_path / "state" / NAME)
    assert rules.reload()
    belongs_to_another(tmp_path / "machine.json")
    assert not rules.reload()
    assert "must belong to user 0:" in rules.problem


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"enforce": "no"}, "'shares.enforce' must be true or false"),
        ({"enforce": 0}, "'shares.enforce' must be true or false"),
        ({"enforce": None}, "'shares.enforce' must be true or false"),
        ({"partMemory": "half"}, "'shares.partMemory' must be true or false"),
        ({"partMemory": []}, "'shares.partMemory' must be true or false"),
        ({"partmemory": True}, "'partmemory' in 'shares' is not known"),
        ({"gpus": {"GPU-1": {"enforce": False}}}, "'enforce' in 'shares.gpus.GPU-1' is not known"),
        ({"timing": {"lease": 200_000}}, "f: 'shares.timing': least, lease and period"),
    ],
)
def test_impossible_rules_are_refused(value: Any, words: str) -> None:
    """The reason names the place, as in a cluster."""
    with pytest.raises(FieldError, match=words):
        parse(json.dumps(value).encode(), "f")


def test_enforcement_and_parts_of_memory_are_set_for_the_whole_machine() -> None:
    """They hold for all of it, as in a cluster."""
    assert parse(b"{}", "f") == ShareSettings(enforce=True, part_memory=False)
    assert parse(b'{"enforce": false, "partMemory": true}', "f") == ShareSettings(enforce=False, part_memory=True)


# --- over a restart ---------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, rules: MachineRules) -> Path:
    """The folder in which our arbiters keep the settings they read."""
    assert rules
    files.make_home(tmp_path / "state")
    return files.home(tmp_path / "state") / files.OWN


def restarted(tmp_path: Path, own: Path) -> MachineRules:
    """Return the rules of the next arbiter of ours."""
    found = MachineRules(tmp_path / "state", tmp_path / "machine.json", keeps=own)
    found.reload()
    return found


def test_the_rules_that_held_last_hold_after_a_restart(tmp_path: Path, own: Path) -> None:
    """A bad file changes nothing then either, and says so; once it is good or gone, that counts."""
    path = write(tmp_path / "state" / NAME, {"timing": {"savings": 7}})
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7
    write(path, "[")
    for _ in range(2):
        found = restarted(tmp_path, own)
        assert found.of("GPU-1").timing.savings == 7
        assert found.problem.startswith(BAD)
        assert found.problem.endswith("The rules that held last hold until it is corrected: then it is read by itself.")
    write(path, {"timing": {"savings": 8}})
    assert found.reload()
    assert (found.of("GPU-1").timing.savings, found.problem) == (8, "")
    write(path, "[")
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 8
    path.unlink()
    assert restarted(tmp_path, own).of("GPU-1").timing == DEFAULT
    write(path, "[")
    assert restarted(tmp_path, own).of("GPU-1").timing == DEFAULT


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_text("{}"),
        lambda path: path.write_text('{"boot": "", "since": -1, "rules": {}}'),
        lambda path: path.write_text('{"boot": "", "since": 0, "rules": {"timing": {"savings": -7}}}'),
        lambda path: path.write_text('{"boot": "", "since": 0, "rules": [1]}'),
        lambda path: path.write_bytes(path.read_bytes() + b" " * last_rules.MAX_BYTES),
        lambda path: path.chmod(0o666),
        lambda path: path.parent.chmod(0o777),
        links,
        Path.unlink,
        pytest.param(lambda path: os.chown(path, 4321, -1), marks=pytest.mark.root),
    ],
)
def test_a_copy_that_cannot_be_used_means_the_defaults(tmp_path: Path, own: Path, harm: Any) -> None:
    """The notice says which rules hold."""
    path = write(tmp_path / "state" / NAME, {"timing": {"savings": 7}})
    restarted(tmp_path, own)
    write(path, "[")
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7
    kept = own / last_rules.NAME
    if harm is links:
        kept.unlink()
    harm(kept)
    found = restarted(tmp_path, own)
    assert found.of("GPU-1").timing == DEFAULT
    assert found.problem.endswith("The defaults hold until it is corrected: then it is read by itself.")


def test_arbiter_killed_while_it_keeps_rules_leaves_the_old_ones(tmp_path: Path, own: Path) -> None:
    """Half a draft is beside them, which the next one replaces."""
    path = write(tmp_path / "state" / NAME, {"timing": {"savings": 7}})
    restarted(tmp_path, own)
    (own / f".{last_rules.NAME}.new").write_text('{"bo')
    write(path, "[")
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7
    write(path, {"timing": {"savings": 8}})
    restarted(tmp_path, own)
    write(path, "[")
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 8
    assert not (own / f".{last_rules.NAME}.new").exists()


def test_where_they_cannot_be_kept_they_hold_all_the_same(
    tmp_path: Path, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so."""
    write(tmp_path / "state" / NAME, {"timing": {"savings": 7}})
    (own / last_rules.NAME).mkdir()
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7
    assert "may not know the rules" in caplog.text


@pytest.mark.root
def test_kept_rules_of_trusted_arbiters_count(tmp_path: Path, own: Path) -> None:
    """The newest counts of root's, the owner's of the state directory, and ours; not what some other user says."""
    state = tmp_path / "state"
    write(state / NAME, {"timing": {"savings": 7}})
    restarted(tmp_path, own)
    write(state / NAME, "[")
    theirs = files.home(state, 4321) / files.OWN
    theirs.mkdir(parents=True)
    text = json.dumps({"boot": "", "since": 0, "rules": {"timing": {"savings": 9}}})
    kept = write(theirs / last_rules.NAME, text)
    for path in (kept, theirs, theirs.parent):
        os.chown(path, 4321, -1)
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7
    os.chown(state, 4321, -1)
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 9
    os.utime(kept, (1, 1))
    assert restarted(tmp_path, own).of("GPU-1").timing.savings == 7


def test_programs_that_were_started_without_the_gate_are_known_by_their_age(tmp_path: Path, own: Path) -> None:
    """From the moment at which shares are enforced again; a restart does not forget it, another boot does."""
    path = write(tmp_path / "state" / NAME, {"enforce": False})
    found = restarted(tmp_path, own)
    assert (found.settings.enforce, found.since) == (False, 0)
    before = last_rules.now(SETTLE)
    write(path, {"enforce": True})
    assert found.reload()
    since = found.since
    assert before <= since <= last_rules.now(SETTLE)
    assert restarted(tmp_path, own).since == since
    kept = own / last_rules.NAME
    write(kept, kept.read_text().replace(boot(), "another"))
    assert restarted(tmp_path, own).since == 0


# --- by an arbiter ------------------------------------------------------------------------------------------------


def sample(machine: Machine, server: Remote) -> dict[str, Any]:
    """Return the content of a share's file; nothing while there is none."""
    found: dict[str, Any] = server.ask("sample").get("shares", {}).get(machine.uuids[0], {})
    return found


def period_and_cap(machine: Machine, server: Remote) -> tuple[int, int]:
    """Period of a share, and the most that its bank holds."""
    found = sample(machine, server)
    return found.get("period", 0), found.get("cap", -1)


def test_an_arbiter_begins_with_the_rules_that_were_set(machine: Machine) -> None:
    """The rules of this very GPU hold."""
    server = machine.server()
    own = {"timing": {"period": 50_000, "savings": 7}, "elastic": {"floor": 0.33}}
    write(machine.state / NAME, {"timing": {"savings": 3}, "gpus": {machine.uuids[0]: own}})
    server.ask("request", milli=500)
    machine.until(lambda: period_and_cap(machine, server) == (50_000, 7 * 25_000), "the rules in the share's file")
    machine.run(share(machine, 500), *HOG)
    machine.until(
        lambda: sample(machine, server).get("effective") == 165, "a third of a half to be left of what is unused"
    )
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
    machine.until(lambda: period_and_cap(machine, second) == (200_000, 15 * 150_000), "the new rules")
    assert sample(machine, second)["balance"] >= 1_000_000
    machine.more(200)
    machine.run(second, *HOG)
    machine.more(200)
    path.unlink()
    machine.until(lambda: period_and_cap(machine, second)[0] == DEFAULT.period, "the defaults")
    machine.more(200)
    assert not program.ended()
    assert machine.arbiter() == pid
    assert machine.sums().overlaps == 0
    assert machine.log().count("have changed") == 2


def test_program_with_a_whole_gpu_goes_on_when_rules_change(machine: Machine) -> None:
    """It goes on with all of its work, as when an arbiter is killed, and under the new one afterwards."""
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
    """A share that may save nothing from now on has nothing."""
    server = share(machine, 500)
    machine.until(lambda: sample(machine, server).get("balance", 0) > 0, "savings")
    write(machine.state / NAME, {"timing": {"savings": 0}})
    machine.until(lambda: period_and_cap(machine, server) == (100_000, 0), "the new rules")
    assert sample(machine, server)["balance"] == 0


def test_penalties_are_set_as_well(machine: Machine) -> None:
    """Here the first violation costs the share, and the panel says so."""
    server, other = machine.server(), machine.server()
    write(machine.state / NAME, {"penalties": {"strikes": 1}})
    for one in (server, other):
        one.ask("request", milli=500)
        machine.served(one)
    violator = start_violator(machine, server)
    machine.run(other, *HOG)
    machine.until(violator.ended, "the end of the violator")
    machine.until(lambda: "ShareTakenAway" in machine.conditions(server), "the revocation")


def test_bad_file_changes_nothing_and_is_reported(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the panel, and once in the logs of the arbiter and of the servers; programs do not even pause."""
    server = share(machine, 500)
    program = machine.run(server, *HOG)
    machine.more(50)
    path = write(machine.state / NAME, {"timing": {"period": 1}})
    user = os.geteuid()
    machine.until(lambda: trust.problem(machine.state, user), "the arbiter's words")
    assert trust.problem(machine.state, user).startswith(f"{BAD} {path}: 'shares.timing': period is 1; it must be")
    machine.until(lambda: BAD in machine.log(), "the log")
    machine.until(lambda: BAD in machine.conditions(server).get("ShareNotice", ""), "the panel")
    client = PodClient(machine.state, "f" * 32, lambda _: None, lambda: None)
    try:
        for _ in range(2):
            client.follow({machine.uuids[0]: 1})
    finally:
        client.close(left=False)
    assert [record.getMessage() for record in caplog.records if BAD in record.getMessage()] == [client.notice]
    machine.more(200)
    path.unlink()
    machine.until(lambda: not trust.problem(machine.state, user), "the end of the complaint")
    machine.until(lambda: "ShareNotice" not in machine.conditions(server), "the panel to be silent")
    assert period_and_cap(machine, server)[0] == DEFAULT.period
    assert machine.log().count(BAD) == 1
    assert "have changed" not in machine.log()
    assert not program.ended()


@pytest.mark.parametrize("moment", ["written", "read"])
def test_an_arbiter_that_is_killed_while_rules_change(machine: Machine, moment: str) -> None:
    """The next arbiter begins with the new rules: shares stay, and no two arbiters run at once."""
    first, second = share(machine, 250), share(machine, 750)
    programs = [machine.run(server, *HOG) for server in (first, second)]
    machine.more(50)
    pid = machine.arbiter()
    write(machine.state / NAME, {"timing": {"period": 200_000}})
    if moment == "read":
        machine.until(lambda: "have changed" in machine.log(), "the new rules")
    os.kill(pid, signal.SIGKILL)
    machine.arbiter(but=pid)
    machine.until(lambda: period_and_cap(machine, first)[0] == 200_000, "the new rules in the share's file")
    machine.more(200)
    assert not any(program.ended() for program in programs)
    assert machine.sums().overlaps == 0


@pytest.mark.parametrize("point", POINTS)
def test_the_rules_that_held_last_survive_every_end(machine: Machine, point: str) -> None:
    """The arbiter is killed while it takes up new ones, and again when the file is bad: the new ones hold."""
    server = machine.server()
    told = machine.state.parent / "point"
    server.ask("crash_at", point=f"@{told}")
    path = write(machine.state / NAME, {"timing": {"period": 50_000}})
    server.ask("request", milli=500)
    machine.until(lambda: period_and_cap(machine, server)[0] == 50_000, "the first rules")
    program = machine.run(server, *HOG)
    pid = machine.arbiter()
    write(told, point)
    write(path, {"timing": {"period": 200_000}})
    machine.until(lambda: not told.exists(), "its death")
    machine.until(lambda: period_and_cap(machine, server)[0] == 200_000, "the new rules")
    second = machine.arbiter(but=pid)
    write(path, "[")
    machine.until(lambda: BAD in machine.conditions(server).get("ShareNotice", ""), "the panel")
    os.kill(second, signal.SIGKILL)
    machine.arbiter(but=second)
    machine.until(lambda: "rules that held last" in trust.problem(machine.state, os.geteuid()), "the words of the next")
    machine.more(100)
    assert period_and_cap(machine, server)[0] == 200_000
    assert not program.ended()


# --- memory, and no gate ----------------------------------------------------------------------------------------------


def seen_memory(machine: Machine, server: Remote) -> int:
    """MiB that a program of the share finds."""
    return int(machine.run(server, "info").lines()[1].split()[1]) // MIB


def test_a_share_gets_no_more_memory_than_time_where_that_is_the_rule(machine: Machine) -> None:
    """Less if its user says so, never more; a whole GPU has all of it, and without the rule a share has as well."""
    server = machine.server()
    server.ask("request", milli=25)
    machine.served(server)
    assert seen_memory(machine, server) == MEMORY
    path = write(machine.state / NAME, {"partMemory": True})
    part = simulated.MEMORY * 25 // 1000 // MIB
    machine.until(lambda: seen_memory(machine, server) == part, "a part of the memory")
    server.ask("request", milli=25, memory=100 * MIB)
    machine.until(lambda: seen_memory(machine, server) == 100, "what its user wants")
    server.ask("request", milli=30)
    machine.until(lambda: seen_memory(machine, server) == simulated.MEMORY * 30 // 1000 // MIB, "a larger part")
    server.ask("request", milli=1000)
    machine.until(lambda: seen_memory(machine, server) == MEMORY, "all of it")
    server.ask("request", milli=25)
    machine.until(lambda: seen_memory(machine, server) == part, "a part of the memory again")
    path.unlink()
    machine.until(lambda: seen_memory(machine, server) == MEMORY, "no limit")


def test_a_driver_that_does_not_tell_is_asked_again() -> None:
    """It is not asked all the time, nor for what is known, and simulated GPUs are never asked for."""
    answers: list[dict[str, int]] = [{}, {"GPU-1": 7}]
    asked = GpuMemory(True, lambda: answers.pop(0))
    asked.learn([simulated.uuid_of(0)], 0)
    assert asked.known[simulated.uuid_of(0)] == simulated.MEMORY
    asked.learn(["GPU-1"], gpu_memory.AGAIN - 1)
    assert "GPU-1" not in asked.known
    asked.learn(["GPU-1"], gpu_memory.AGAIN)
    asked.learn(["GPU-1"], gpu_memory.AGAIN * 9)
    assert asked.known["GPU-1"] == 7
    assert GpuMemory(False).known == {}


def test_without_enforcement_new_programs_have_no_gate(machine: Machine) -> None:
    """The panel says why; programs with the gate keep their turns, and all is as before when it is back."""
    first, second = share(machine, 500), share(machine, 500)
    program = machine.run(first, *HOG)
    machine.more(50)
    path = write(machine.state / NAME, {"enforce": False})
    off = "the administrator of this machine has switched it off"
    for server in (first, second):
        machine.until(partial(panel, machine, server, off), "the panel")
        assert server.ask("environment").keys() == {"JUPYTER_GPU_POD", "JUPYTER_GPU_SIMULATED"}
    free = machine.run(second, *HOG)
    machine.until(lambda: "JUPYTER_GPU_GATE" not in environment_of(free.pid), "a program without the gate")
    machine.until(lambda: machine.sums().overlaps > 0, "it to launch as it likes")
    machine.more(300)
    assert not program.ended()
    assert not free.ended()
    assert first.ask("sample")["shares"]
    free.send(signal.SIGKILL)
    path.unlink()
    for server in (first, second):
        machine.until(partial(panel, machine, server, ""), "the panel")

    def none_comes() -> bool:
        """The free share's queued work is done."""
        found = machine.sums().overlaps
        machine.more(300)
        return machine.sums().overlaps == found

    machine.until(none_comes, "the last overlap")
    before = machine.sums().overlaps
    assert before
    again = machine.run(second, *HOG)
    machine.until(lambda: "JUPYTER_GPU_GATE" in environment_of(again.pid), "a program with the gate")
    machine.more(500)
    assert machine.sums().overlaps == before
    assert not program.ended()


def panel(machine: Machine, server: Remote, words: str) -> bool:
    """Whether it says why shares are not enforced, or nothing."""
    said = machine.conditions(server).get("ShareNotEnforced", "")
    return words in said if words else not said


def environment_of(pid: int) -> str:
    """Return the environment it was started with."""
    return Path(f"/proc/{pid}/environ").read_text()
