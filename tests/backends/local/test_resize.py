"""Growing and shrinking of real processes with real devices: which process can open what, and when another pod gets
it."""

import os
import signal
import time
from pathlib import Path

import pytest

from .stage import Stage, states, wait_for

pytestmark = pytest.mark.root


def test_only_granted_gpus_can_be_opened(stage: Stage) -> None:
    """A kernel that was started with nothing opens exactly the GPUs of each resize, without a restart."""
    server = stage.server()
    kernel = stage.kernel(server)
    assert kernel.ask("tries", paths=stage.paths) == [False] * 3
    for amount in (1, 3, 2, 0, 2):
        view = server.ask("request", milli=amount * 1000)
        assert sum(kernel.ask("tries", paths=stage.paths)) == amount
        assert view["mode"] == "enforced"
        assert view["phase"] == ("Ready" if amount else "Idle")


def test_a_share_that_cannot_be_had_now_is_completed_when_another_server_shrinks(stage: Stage) -> None:
    """Partial now, the rest within a moment of the other's release, by a notification and not by polling."""
    first, second = stage.server(), stage.server()

    def completed() -> float:
        first.ask("request", milli=2000)
        view = second.ask("request", milli=3000)
        assert (view["phase"], view["reason"], len(view["gpus"])) == ("Waiting", "Partial", 1)
        assert view["allocated"]["position"] == 1
        second.tell("until", phase="Ready")
        time.sleep(0.05)
        before = time.monotonic()
        first.ask("request", milli=0)
        after: float = second.answer()
        assert second.ask("tries", paths=stage.paths) == [True] * 3
        assert first.ask("tries", paths=stage.paths) == [False] * 3
        second.ask("request", milli=0)
        second.ask("until", phase="Idle")
        return after - before

    # a timer would take a second at least, each time; a busy machine does not take as long each time
    wait_for(lambda: completed() < 0.5, "it to be sooner than by a timer")


def test_open_gpu_is_granted_to_no_other_until_it_is_closed(stage: Stage) -> None:
    """A GPU that was taken while a kernel has it open drains: no new open succeeds, and no other server gets it."""
    holding, waiting = stage.server(), stage.server()
    kernel = stage.kernel(holding)
    holding.ask("request", milli=3000)
    assert kernel.ask("open", path=stage.paths[0]) == ""
    view = holding.ask("request", milli=0)
    assert states(view) == [(0, "draining")]
    assert [user["pid"] for user in view["gpus"][0]["users"]] == [kernel.pid]
    assert kernel.ask("tries", paths=stage.paths) == [False] * 3
    assert waiting.ask("request", milli=3000)["reason"] == "Partial"
    assert waiting.ask("tries", paths=stage.paths) == [False, True, True]
    waiting.tell("until", phase="Ready")
    kernel.ask("close", path=stage.paths[0])
    waiting.answer()
    assert waiting.ask("tries", paths=stage.paths) == [True] * 3
    holding.ask("until", phase="Idle")


def test_a_descriptor_that_was_passed_out_of_the_pod_still_holds_the_gpu(stage: Stage) -> None:
    """The GPU drains for as long as a process outside has the descriptor, and the view names that process."""
    server = stage.server()
    kernel, outside = stage.kernel(server), stage.actor()
    path = server.ask("request", milli=1000)["gpus"][0]["path"]
    assert kernel.ask("open", path=path) == ""
    carrier = str(stage.state.parent / "carrier")
    outside.ask("receive", path=path, at=carrier)
    kernel.ask("send", path=path, to=carrier)
    view = server.ask("request", milli=0)
    assert [gpu["state"] for gpu in view["gpus"]] == ["draining"]
    assert [(user["pid"], user["foreign"]) for user in view["gpus"][0]["users"]] == [(outside.pid, True)]
    kernel.kill()
    assert server.ask("view")["phase"] == "Releasing"
    outside.ask("close", path=path)
    server.ask("until", phase="Idle")


def test_a_mapping_holds_the_gpu_after_its_descriptor_is_closed(stage: Stage) -> None:
    """Memory that is mapped is a use of the device, with no open descriptor at all."""
    server = stage.server(enforcement="soft")
    for path in stage.paths:
        # Virtual consoles can't be mapped; plain files, which simulate GPUs for everybody but root, can.
        Path(path).unlink()
        Path(path).touch()
    kernel = stage.kernel(server)
    view = server.ask("request", milli=1000)
    path = view["gpus"][0]["path"]
    kernel.ask("map", path=path)
    view = server.ask("request", milli=0)
    assert [gpu["state"] for gpu in view["gpus"]] == ["draining"]
    assert [user["pid"] for user in view["gpus"][0]["users"]] == [kernel.pid]
    kernel.ask("unmap", path=path)
    server.ask("until", phase="Idle")


def test_a_shrink_that_is_taken_back_gives_back_the_same_gpu(stage: Stage) -> None:
    """Growing again while a GPU drains takes that one, and the descriptor that stayed open is no obstacle."""
    server = stage.server()
    kernel = stage.kernel(server)
    granted = server.ask("request", milli=1000)["gpus"][0]
    assert kernel.ask("open", path=granted["path"]) == ""
    assert states(server.ask("request", milli=0)) == [(granted["index"], "draining")]
    assert states(server.ask("request", milli=1000)) == [(granted["index"], "attached")]
    assert kernel.ask("tries", paths=[granted["path"]]) == [True]


def test_a_kernel_that_is_killed_while_draining_frees_its_gpu_at_once(stage: Stage) -> None:
    """Its end is reported, not found by chance: sooner than the timer's slowest pace."""
    server = stage.server()
    kernel = stage.kernel(server)
    path = server.ask("request", milli=1000)["gpus"][0]["path"]
    assert kernel.ask("open", path=path) == ""
    assert server.ask("request", milli=0)["phase"] == "Releasing"
    server.tell("until", phase="Idle")
    kernel.kill()
    server.answer()


def test_a_process_that_never_closes_keeps_only_its_own_gpu(stage: Stage) -> None:
    """Everything else goes on: other GPUs are released, others are granted, the view names the process in the way."""
    server = stage.server()
    kernel = stage.kernel(server)
    server.ask("request", milli=2000)
    assert kernel.ask("open", path=stage.paths[0]) == ""
    server.ask("request", milli=0)
    for _ in range(5):
        view = server.ask("request", milli=1000, each=1000)
        assert (view["phase"], [gpu["index"] for gpu in view["gpus"]]) == ("Ready", [0])
        view = server.ask("request", milli=0)
        assert states(view) == [(0, "draining")]
    assert view["gpus"][0]["users"][0]["pid"] == kernel.pid


def test_shrink_takes_the_idle_gpu(stage: Stage) -> None:
    """Shrinking takes what no process has open, though it is older."""
    server = stage.server()
    kernel = stage.kernel(server)
    server.ask("request", milli=2000)
    assert kernel.ask("open", path=stage.paths[1]) == ""
    view = server.ask("request", milli=1000)
    assert states(view) == [(1, "attached")]
    assert view["phase"] == "Ready"


def test_two_shares_of_one_gpu_do_not_wait_for_each_other(stage: Stage) -> None:
    """Another pod that uses the same GPU is no reason to drain; a pod's own use is."""
    first, second = stage.server(), stage.server()
    granted = [server.ask("request", milli=500)["gpus"][0]["path"] for server in (first, second)]
    assert granted[0] == granted[1]
    assert [condition["type"] for condition in first.ask("view")["conditions"]] == ["Simulated"]
    one, other = stage.kernel(first), stage.kernel(second)
    assert one.ask("open", path=granted[0]) == other.ask("open", path=granted[0]) == ""
    assert first.ask("request", milli=0)["phase"] == "Releasing"
    one.ask("close", path=granted[0])
    first.ask("until", phase="Idle")
    assert second.ask("view")["phase"] == "Ready"


def test_a_server_that_is_stopped_returns_everything(stage: Stage) -> None:
    """After its goodbye nothing of it is left: no record, no group, and its GPUs are others' at once."""
    first, second = stage.server(), stage.server()
    first.ask("request", milli=3000)
    assert second.ask("request", milli=1000)["phase"] == "Waiting"
    second.tell("until", phase="Ready")
    first.ask("stop")
    second.answer()
    wait_for(lambda: len(list((stage.state / "pods").iterdir())) == 2, "record and socket of the other to be alone")


def test_a_server_that_is_stopped_while_a_kernel_has_a_gpu_open_leaves_it_to_the_kernel(stage: Stage) -> None:
    """A GPU that is open at the server's end is free when the kernel ends, whichever server finds that out."""
    first, second = stage.server(), stage.server()
    kernel = stage.kernel(first)
    first.ask("request", milli=3000)
    assert kernel.ask("open", path=stage.paths[2]) == ""
    first.ask("stop")
    assert kernel.ask("tries", paths=stage.paths) == [False] * 3
    view = second.ask("request", milli=3000)
    assert (view["reason"], [gpu["index"] for gpu in view["gpus"]]) == ("Partial", [0, 1])
    second.tell("until", phase="Ready")
    kernel.kill()
    second.answer()
    wait_for(lambda: len(list((stage.state / "pods").glob("*.json"))) == 1, "the record to be removed")


def test_a_killed_server_keeps_its_gpus_until_its_last_process_is_gone(stage: Stage) -> None:
    """Kill -9 of the server frees nothing while its kernel runs; then everything, with its group and its record."""
    first, second = stage.server(), stage.server()
    kernel = stage.kernel(first)
    first.ask("request", milli=2000)
    assert second.ask("request", milli=3000)["reason"] == "Partial"
    first.kill()
    time.sleep(0.2)
    view = second.ask("view")
    assert (view["reason"], len(view["gpus"])) == ("Partial", 1)
    assert kernel.ask("tries", paths=stage.paths).count(True) == 2
    second.tell("until", phase="Ready")
    kernel.kill()
    second.answer()
    assert second.ask("tries", paths=stage.paths) == [True] * 3


def test_end_of_a_killed_server_is_noticed(stage: Stage) -> None:
    """A server that waits gets the GPUs of one that is killed, without a notification, within a moment."""
    second = stage.server()

    def heard() -> float:
        first = stage.server()
        first.ask("request", milli=3000)
        second.ask("request", milli=3000)
        second.tell("until", phase="Ready")
        first.kill()
        before = time.monotonic()
        after: float = second.answer()
        second.ask("request", milli=0)
        second.ask("until", phase="Idle")
        return after - before

    # the slowest timer would take a second; a busy machine does not take as long each time
    wait_for(lambda: heard() < 0.9, "it to be sooner than by a timer")


def test_frozen_server_affects_only_itself(stage: Stage) -> None:
    """Others go on with what it does not hold; when it goes on, so does its wish."""
    first, second = stage.server(), stage.server()
    first.ask("request", milli=1000)
    first.tell("freeze")
    wait_for(lambda: " T " in Path(f"/proc/{first.pid}/stat").read_text(), "it to stop")
    assert second.ask("request", milli=2000)["phase"] == "Ready"
    os.kill(first.pid, signal.SIGCONT)
    first.answer()
    assert first.ask("request", milli=1000)["phase"] == "Ready"
