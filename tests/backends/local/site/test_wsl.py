"""GPUs without devices of their own, as in WSL 2: a stand-in for the driver, everything else is real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.local.site import surroundings
from tests.backends.local.stage import Remote, Stage, wait_for


class Machine:
    """A machine with the GPUs that its driver lists, and servers there."""

    def __init__(self, stage: Stage, place: Path) -> None:
        self.stage = stage
        self.driver = place / "driver.json"
        self.dxg = place / "dxg"
        self.dxg.touch()

    def says(self, *pids: list[int] | None) -> None:
        """So many GPUs, each with its users; None where these are unknown."""
        gpus: list[dict[str, Any]] = [{"uuid": f"GPU-{index}", "unnumbered": True} for index in range(len(pids))]
        for gpu, used in zip(gpus, pids, strict=True):
            if used is not None:
                gpu["computing"] = [[pid, None] for pid in used]
        draft = self.driver.with_suffix(".draft")
        draft.write_text(json.dumps({"gpus": gpus, "nodes": "-none-"}))
        draft.replace(self.driver)

    def actor(self) -> Remote:
        """A process that finds this."""
        actor = self.stage.actor()
        actor.ask("wsl", driver=str(self.driver), dxg=str(self.dxg))
        return actor

    def server(self, enforcement: str = "auto") -> Remote:
        """A server that uses them."""
        return self.stage.server(self.actor(), simulated_gpus=0, enforcement=enforcement)


@pytest.fixture
def machine(stage: Stage, tmp_path: Path) -> Machine:
    """Two GPUs of which the driver does not tell who uses them."""
    made = Machine(stage, tmp_path)
    made.says(None, None)
    return made


def kinds(view: dict[str, Any]) -> dict[str, str]:
    """Return the messages of the view by type."""
    return {one["type"]: one["message"] for one in view["conditions"]}


def test_soft_mode_reports_unguarded_gpus_and_unknown_users(machine: Machine) -> None:
    """GPUs are counted, given and taken; root or not, nothing is guarded, and their users are unknown."""
    server = machine.server()
    view = server.ask("request", milli=2000)
    assert (view["mode"], view["phase"], view["total"]) == ("soft", "Ready", 2000)
    assert ["device" in gpu for gpu in view["gpus"]] == [False, False]
    assert str(machine.dxg) in kinds(view)["SoftMode"]
    assert "GPUs 0, 1" in kinds(view)["UsersUnknown"]
    other = machine.server()
    assert other.ask("request", milli=1000)["reason"] == "Deferred"
    assert server.ask("request", milli=1000)["phase"] == "Ready"
    other.ask("until", phase="Ready", attached=1000)


def test_required_enforcement_is_refused(machine: Machine) -> None:
    """A server that must guard its GPUs does not start, and says why."""
    with pytest.raises(RuntimeError, match=f"cannot guard the GPUs.*{machine.dxg}"):
        machine.server("required")


def test_driver_reports_users(machine: Machine) -> None:
    """Then a GPU drains until its program ends, one that a stranger uses is taken last, and nothing is unknown."""
    stranger = machine.stage.actor()
    machine.says([], [])
    server = machine.server("soft")
    kernel = machine.stage.kernel(server)
    machine.says([stranger.pid], [kernel.pid])
    view = server.ask("request", milli=1000)
    assert ([gpu["index"] for gpu in view["gpus"]], "UsersUnknown" in kinds(view)) == ([1], False)
    view = server.ask("request", milli=2000)
    assert [[one["pid"] for one in gpu.get("strangers", [])] for gpu in view["gpus"]] == [[stranger.pid], []]
    view = server.ask("request", milli=0)
    assert view["phase"] == "Releasing"
    assert [user["pid"] for gpu in view["gpus"] for user in gpu["users"]] == [kernel.pid]
    machine.says([stranger.pid], [])
    server.ask("until", phase="Idle")


def test_unguardable_gpu_is_refused_where_others_are_guarded(machine: Machine) -> None:
    """An enforced server does not use a GPU without a device, and says why."""
    machine.dxg.unlink()
    server = machine.actor()
    machine.stage.start(server, simulated_gpus=0, enforcement="auto", patient=False)
    if server.ask("view")["mode"] == "soft":
        pytest.skip("not run: needs the right to guard devices")
    wait_for(lambda: "NoGpu" in kinds(server.ask("view")), "the inventory")
    assert "no device of its own" in kinds(server.ask("view"))["NoGpu"]


def test_one_device_for_all_gpus_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a device for each beside it, each can be guarded."""
    monkeypatch.setattr(surroundings, "DXG", tmp_path / "dxg")
    assert not surroundings.one_for_all()
    (tmp_path / "dxg").touch()
    (tmp_path / "nvidiactl").touch()
    assert str(tmp_path / "dxg") in surroundings.one_for_all()
    (tmp_path / "nvidia0").touch()
    assert not surroundings.one_for_all()
