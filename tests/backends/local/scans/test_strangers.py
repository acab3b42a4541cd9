"""Programs that use a GPU without having been given it: real processes on simulated devices."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import Any

import pytest

from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.backends.local.scans import strangers as module
from jupyter_gpu.backends.local.scans.strangers import Strangers, account_of, commands, quiet
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import View
from jupyter_gpu_node.processes import device_scan, proc
from tests.backends.local.actor import FLAGS
from tests.backends.local.looks_real import tell
from tests.backends.local.stage import Remote, Stage, states, wait_for

ALICE = 65534
MODES = [pytest.param("soft", id="soft"), pytest.param("auto", id="enforced", marks=pytest.mark.root)]


def server(stage: Stage, enforcement: str = "soft", actor: Remote | None = None, **options: Any) -> Remote:
    """A server whose GPUs pass for real ones."""
    made = actor or stage.actor()
    if not actor:
        made.ask("real_gpus", count=stage.gpus)
    stage.start(made, simulated_gpus=0, enforcement=enforcement, **options)
    return made


def stranger(stage: Stage, *indices: int) -> Remote:
    """A program of no pod that has these GPUs open."""
    made = stage.actor()
    for index in indices:
        assert made.ask("open", path=stage.paths[index]) == ""
    return made


def make_for_all(stage: Stage) -> None:
    """The state directory, as root makes it."""
    with StateStore(stage.state).locked():
        pass


def used(view: dict[str, Any]) -> dict[int, list[int]]:
    """By index of each GPU, pids of its strangers."""
    return {gpu["index"]: [one["pid"] for one in gpu.get("strangers", [])] for gpu in view["gpus"]}


@pytest.mark.parametrize("enforcement", MODES)
def test_gpus_of_strangers_are_granted_last_and_reported(stage: Stage, enforcement: str) -> None:
    """A GPU that a program outside uses is granted only if there is no other, and the view names the program."""
    other = stranger(stage, 0)
    mine = server(stage, enforcement)
    view = mine.ask("request", milli=2000)
    assert used(view) == {1: [], 2: []}
    assert sentence(View.from_json(view)) == "2 of 3 GPUs attached"
    view = mine.ask("request", milli=3000)
    assert used(view) == {0: [other.pid], 1: [], 2: []}
    (told,) = view["gpus"][0]["strangers"]
    assert told == {"pid": other.pid, "command": "python", "user": account_of(os.geteuid())}
    assert sentence(View.from_json(view)) == (
        f"3 of 3 GPUs attached; GPU 0 is also used by python (process {other.pid}, {told['user']}), "
        "which did not get it from jupyter-gpu"
    )
    assert [gpu.exclusive for gpu in View.from_json(view).gpus] == [False, True, True]
    view = mine.ask("request", milli=1000)
    assert used(view) == {1: []}, "it goes first, then the newest"


def test_strangers_are_noticed_without_a_viewer(stage: Stage) -> None:
    """The end of a process is noticed at once, and the survey while something is attached finds others."""
    actor = stage.actor()
    actor.ask("real_gpus", count=3, every=0.2)
    mine = server(stage, actor=actor)
    assert used(mine.ask("request", milli=3000)) == {0: [], 1: [], 2: []}
    other, third = stranger(stage, 1), stranger(stage, 1, 2)
    wait_for(lambda: used(mine.ask("view")) == {0: [], 1: sorted([other.pid, third.pid]), 2: [third.pid]}, "both")
    third.ask("close", path=stage.paths[2])
    wait_for(lambda: used(mine.ask("view"))[2] == [], "the one that closed it")
    other.kill()
    third.kill()
    wait_for(lambda: used(mine.ask("view")) == {0: [], 1: [], 2: []}, "the end of both")


def test_end_of_a_stranger_is_noticed_before_the_next_survey(stage: Stage) -> None:
    """Between two surveys lie seconds, but a process that ended uses nothing."""
    other = stranger(stage, 0, 1, 2)
    actor = stage.actor()
    actor.ask("real_gpus", count=3, every=3600)
    mine = server(stage, actor=actor)
    assert used(mine.ask("request", milli=1000)) == {2: [other.pid]}
    other.kill()
    wait_for(lambda: used(mine.ask("view")) == {2: []}, "its end")


def test_simulated_gpus_are_surveyed_after_the_grant(stage: Stage) -> None:
    """Their grant waits for no survey. A moment later the view shows their users, and the next grant avoids them."""
    other = stranger(stage, 2)
    mine = stage.server()
    mine.ask("request", milli=1000)
    wait_for(lambda: used(mine.ask("view")) == {2: [other.pid]}, "the scan after the grant")
    mine.ask("request", milli=0)
    view = mine.ask("request", milli=1000)
    assert states(view) == [(0, "attached"), (2, "draining")]
    assert used(view) == {0: [], 2: []}


@pytest.mark.parametrize("enforcement", MODES)
def test_programs_of_pods_are_no_strangers(stage: Stage, enforcement: str) -> None:
    """Kernels of this server and of others that share the GPU; one that has no share of it is."""
    mine = stage.server(enforcement=enforcement)
    kernel = stage.kernel(mine)
    sharer = stage.server(enforcement=enforcement)
    worker = stage.kernel(sharer)
    mine.ask("request", milli=500)
    sharer.ask("request", milli=500)
    for program in (kernel, worker):
        assert program.ask("open", path=stage.paths[0]) == ""
    mine.ask("sample")
    assert used(mine.ask("view")) == {0: []}
    assert [user["pid"] for user in mine.ask("view")["gpus"][0]["users"]] == [kernel.pid]
    if enforcement == "soft":
        trespasser = stage.kernel(stage.server(enforcement="soft"))
        assert trespasser.ask("open", path=stage.paths[0]) == ""
        mine.ask("sample")
        assert used(mine.ask("view")) == {0: [trespasser.pid]}


def test_process_without_its_mark_belongs_to_its_server(stage: Stage) -> None:
    """A kernel's child may empty its environment; its parents still show whose it is."""
    mine = stage.server(enforcement="soft")
    (gpu,) = mine.ask("request", milli=1000)["gpus"]
    command = ["env", "-i", "/bin/sh", "-c", f"exec 7<>{gpu['path']}; exec sleep 60"]
    pid = mine.ask("run", command=command, out=os.devnull, env={})
    targets = device_scan.targets(one for one in stage.inventory() if one.uuid == gpu["uuid"])
    try:
        wait_for(lambda: device_scan.scan(targets, [pid]).holders[gpu["uuid"]], "the child")
        mine.ask("sample")
        (card,) = mine.ask("view")["gpus"]
        assert [user["pid"] for user in card["users"]] == [pid]
        assert "strangers" not in card
    finally:
        os.kill(pid, signal.SIGKILL)


def test_listed_programs_are_no_strangers(stage: Stage) -> None:
    """Their names are cut off by the kernel after 15 characters, and may be longer in the setting."""
    long_name = stage.state.parent / "a-name-of-more-than-fifteen"
    long_name.symlink_to("/bin/sleep")
    device = os.open(stage.paths[0], FLAGS)
    program = subprocess.Popen([str(long_name), "60"], executable=str(long_name), pass_fds=[device])
    os.close(device)
    try:
        listed = server(stage, system_holders=[long_name.name])
        assert used(listed.ask("request", milli=3000)) == {0: [], 1: [], 2: []}
        assert listed.ask("request", milli=0)["phase"] == "Idle"
        assert used(server(stage).ask("request", milli=3000)) == {0: [program.pid], 1: [], 2: []}
    finally:
        program.kill()
        program.wait()


@pytest.mark.root
def test_driver_reports_programs_of_other_users(stage: Stage) -> None:
    """A server that is not root can't see other users' open files; the driver reports the pid, which gives the rest."""
    make_for_all(stage)
    other = stranger(stage, 0)
    using = stage.state.parent / "using"
    actor = stage.actor()
    actor.ask("real_gpus", count=3, using=str(using))
    actor.ask("become", user=ALICE)
    tell(using, other.pid, 2**22 + 1)
    server(stage, actor=actor)
    view = actor.ask("request", milli=1000)
    assert view["gpus"][0]["strangers"] == [{"pid": other.pid, "command": "python", "user": "root"}]
    tell(using)
    actor.ask("sample")
    assert used(actor.ask("view")) == {view["gpus"][0]["index"]: []}


@pytest.mark.root
def test_pod_of_another_user_is_no_stranger_where_it_shares(stage: Stage) -> None:
    """Its kernels may not be looked into: what its user, or its server, has on a GPU that it shares is the pod's."""
    using = stage.state.parent / "using"
    actor = stage.actor()
    actor.ask("real_gpus", count=3, using=str(using))
    actor.ask("become", user=ALICE)
    sharer = server(stage)
    kernel = stage.kernel(sharer)
    sharer.ask("request", milli=500)
    tell(using, kernel.pid)
    server(stage, actor=actor)
    assert used(actor.ask("request", milli=500)) == {0: []}
    sharer.ask("request", milli=0)
    actor.ask("sample")
    assert used(actor.ask("view")) == {0: [kernel.pid]}


def test_process_with_a_gpu_from_the_pod_blocks_after_a_cancelled_shrink(stage: Stage) -> None:
    """A shrink is cancelled while a program outside has the GPU from the pod: the next shrink waits for it again."""
    mine = server(stage)
    kernel, outside = stage.kernel(mine), stage.actor()
    view = mine.ask("request", milli=3000)
    path = view["gpus"][0]["path"]
    assert kernel.ask("open", path=path) == ""
    carrier = str(stage.state.parent / "carrier")
    outside.ask("receive", path=path, at=carrier)
    kernel.ask("send", path=path, to=carrier)
    assert mine.ask("request", milli=0)["phase"] == "Releasing"
    mine.ask("request", milli=3000)
    assert mine.ask("request", milli=0)["phase"] == "Releasing"
    outside.ask("close", path=path)
    mine.ask("until", phase="Idle")


def test_monitors_are_no_strangers() -> None:
    """The driver's daemons, if they run as a system user, and the usual monitors; no others."""
    assert quiet(proc.ProcessInfo(1, 1, "nvidia-persiste", 113))
    assert not quiet(proc.ProcessInfo(1, 1, "nvidia-persiste", 1000))
    assert quiet(proc.ProcessInfo(1, 1, "nvtop", 1000))
    assert not quiet(proc.ProcessInfo(1, 1, "python", 0))
    assert commands(["nvidia-persistenced", "Xorg"]) == {"nvidia-persiste", "Xorg"}


def test_names_of_accounts() -> None:
    """Root is root everywhere; an id without a name is shown as a number, one that is not known not at all."""
    assert (account_of(0), account_of(3_999_999), account_of(-1)) == ("root", "3999999", None)


def test_time_of_the_next_survey(monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after a grant, if none came before it; then seldom; and at once when a stranger has ended."""
    known = Strangers()
    assert known.due((), 0)
    known.survey({}, 100)
    assert (known.due((), 109.9), known.due((), 110)) == (False, True)
    known.granted(100.5)
    assert known.pause(100.5) == 9.5
    known.granted(105)
    assert (known.pause(105), known.due((), 105.9), known.due((), 106)) == (1, False, True)
    monkeypatch.setattr(module, "alive", lambda process: process.pid != 2**30 + 7)
    known.note({"a": (proc.ProcessInfo(2**30 + 7, 1, "x"),), "b": (proc.ProcessInfo(2**30 + 8, 1, "y"),)})
    known.survey({}, 200)
    assert (known.due(["a"], 200), known.due(["b"], 200), sorted(known.used)) == (True, False, ["a", "b"])
    known.note({"a": ()})
    assert (sorted(known.used), sorted(known.described())) == (["b"], ["b"])
