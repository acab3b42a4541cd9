"""`jupyter gpu doctor`: its rules, and what it finds in real servers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.cli.codes import DONE, ERROR
from jupyter_gpu.doctor import probe
from jupyter_gpu.doctor.rules.facts import Facts, KernelFact
from jupyter_gpu.doctor.rules.findings import Finding, Level, judge
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import Condition, Mode, View
from tests.gate.building import build_nvml, build_standin_nvml
from tests.kernel.servers import Server, await_, environment
from tests.model.strategies import views

from .test_watch_view import BARE

FINE = Facts(
    version="1.0", python="3.11", prefix="/opt", extension="enabled", labextension="1.0", gate=True, state="/run/gpu"
)
SERVER = replace(FINE, kernels=(KernelFact("python3", "0123456789"),))


def about(name: str, here: Facts = FINE, there: Facts | None = SERVER, view: View | None = BARE) -> list[Finding]:
    """Return the findings of that name."""
    return [finding for finding in judge(here, there, view, "The server is away.") if finding.about == name]


def test_healthy_facts_give_no_advice() -> None:
    """Each part says that it is in order."""
    findings = judge(FINE, SERVER, BARE, "")
    assert {finding.level for finding in findings} == {Level.OK}
    names = {finding.about for finding in findings}
    assert names == {"version", "gate", "extension", "labextension", "server", "gpus", "mode", "state", "kernels"}
    assert not any(finding.advice for finding in findings)


@pytest.mark.parametrize(
    ("name", "change", "level", "said"),
    [
        ("gate", {"gate": False}, Level.OK, "The gate is there"),
        ("extension", {"extension": "disabled"}, Level.PROBLEM, "is disabled in /opt"),
        ("extension", {"extension": "missing"}, Level.PROBLEM, "not enabled in any configuration"),
        ("labextension", {"labextension": ""}, Level.PROBLEM, "not installed"),
        ("labextension", {"labextension_disabled": True}, Level.PROBLEM, "is disabled"),
        ("labextension", {"labextension": "0.9"}, Level.PROBLEM, "has version 0.9"),
        ("versions", {"version": "0.9"}, Level.PROBLEM, "has jupyter-gpu 0.9, and this command is 1.0"),
        ("CUDA_VISIBLE_DEVICES", {"visible": "3"}, Level.NOTE, "set to '3' of the server"),
        ("state", {"state_trouble": "no space"}, Level.PROBLEM, "cannot be used: no space"),
        ("state", {"state_private": True}, Level.NOTE, "Only this user"),
        ("node-plugin", {"socket": "/s", "socket_trouble": "refused"}, Level.PROBLEM, "does not answer at /s: refused"),
        ("node-plugin", {"socket": "/s", "token": True}, Level.OK, "answers"),
        ("token", {"socket": "/s"}, Level.PROBLEM, "no token"),
        ("kernels", {"kernels": (KernelFact("r", "0123456789", "reasons"),)}, Level.NOTE, "r (01234567) runs without"),
        ("kernels", {"kernels": SERVER.kernels * 2}, Level.OK, "All 2 kernels"),
    ],
)
def test_fault_in_the_server_s_environment_is_found(name: str, change: dict[str, Any], level: Level, said: str) -> None:
    """The finding says what to do."""
    (finding,) = about(name, there=replace(SERVER, **change))
    assert (finding.level, said in finding.text) == (level, True)
    assert (finding.advice != "") == (level is not Level.OK)


def test_missing_gate_is_a_note() -> None:
    """A wheel without a gate is worth a note."""
    assert about("gate", here=replace(FINE, gate=False))[0].level is Level.NOTE


def test_conditions_of_gpus_are_findings() -> None:
    """Conditions that block the server's use differ from those that only inform."""
    conditions = (Condition("SoftMode", "Soft mode: so it is."), Condition("StateDamaged", "A record is bad."))
    view = replace(BARE, mode=Mode.SOFT, conditions=conditions, requested=Requested(4, Wish(1000)))
    found = {finding.about: finding for finding in judge(replace(FINE, driver="550"), SERVER, view, "")}
    assert found["SoftMode"].level is Level.NOTE
    assert "as root" in found["SoftMode"].advice
    assert found["StateDamaged"].level is Level.PROBLEM
    assert "has not been decided yet" in found["request"].text
    assert found["gpus"].text.endswith("NVIDIA's driver is 550.")
    assert "mode" not in found
    assert not about("gpus", view=replace(BARE, total=0, limit=0))


def test_gpus_of_other_nodes_are_not_said_to_be_here() -> None:
    """The most that the server could have is told by place."""
    (finding,) = about("gpus", view=replace(BARE, total=5000, limit=5000, elsewhere=3000))
    assert finding.text.startswith("2 GPUs here and 3 GPUs on other nodes, now: ")


def test_server_without_gpus_says_why() -> None:
    """A server that runs and cannot serve GPUs gives the reason."""
    (finding,) = about("gpus", view=None)
    assert (finding.level, finding.text) == (Level.PROBLEM, "The server is away.")


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({"driver": "550", "devices": 2}, Level.OK, "driver 550 answers; 2 GPUs"),
        ({"devices": 2, "driver_trouble": "mismatch"}, Level.PROBLEM, "cannot be asked: mismatch"),
        ({"driver_trouble": "not found"}, Level.NOTE, "no NVIDIA GPU here that can be seen (not found)"),
        ({}, Level.NOTE, "(no driver)"),
    ],
)
def test_missing_server_is_reported_with_local_facts(change: dict[str, Any], level: Level, said: str) -> None:
    """Local facts are reported, and why no server answers."""
    findings = {finding.about: finding for finding in judge(replace(FINE, **change), None, None, "None was found.")}
    assert (findings["server"].level, findings["server"].text) == (Level.PROBLEM, "None was found.")
    assert (findings["driver"].level, said in findings["driver"].text) == (level, True)


def test_variable_of_the_terminal_is_reported() -> None:
    """It is reported even if it is set there alone."""
    assert "set to '7' here" in about("CUDA_VISIBLE_DEVICES", here=replace(FINE, visible="7"))[0].text


texts = st.sampled_from(["", "1.0", "a text"])
facts = st.builds(
    Facts,
    *[texts] * 5,
    st.booleans(),
    texts,
    st.booleans(),
    texts,
    texts,
    st.booleans(),
    *[texts] * 3,
    st.integers(0, 9),
    texts,
    texts,
    st.booleans(),
    st.lists(st.builds(KernelFact, texts, texts, texts), max_size=2).map(tuple),
)


@pytest.mark.uncounted(after=25)
@given(facts, st.none() | facts, st.none() | views, texts)
def test_any_facts_can_be_reported(here: Facts, there: Facts | None, view: View | None, lost: str) -> None:
    """Whatever is found has a text, and no problem comes without one."""
    for finding in judge(here, there, view if there else None, lost or "away"):
        assert finding.text
        assert json.loads(json.dumps(finding.to_json()))["level"] in set(Level)


@given(facts)
def test_facts_round_trip(found: Facts) -> None:
    """Facts are read as they were sent, and missing ones are empty."""
    assert Facts.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert Facts.from_json({}) == Facts()


@pytest.mark.parametrize("bad", [{"gate": 1}, {"devices": -1}, {"state": 7}, {"kernels": [{}]}, {"version": 7}])
def test_other_json_is_refused(bad: dict[str, Any]) -> None:
    """It is not read as facts."""
    with pytest.raises(FieldError):
        Facts.from_json(bad)


def test_state_directory_is_classified(tmp_path: Path) -> None:
    """A usable, a private and a blocked directory are distinguished; nothing is created."""
    assert probe.collect_facts(str(tmp_path / "state"), driver=False).state_trouble == ""
    assert probe.collect_facts(str(tmp_path / "state"), driver=False).state_private
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    assert probe.collect_facts(str(tmp_path / "file"), driver=False).state_trouble == "it is not a directory"
    assert probe.collect_facts(str(tmp_path / "link"), driver=False).state_trouble == "it is not a directory"
    assert "cannot be written to" in probe.collect_facts("/proc/nowhere/state", driver=False).state_trouble
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    assert not probe.collect_facts(str(tmp_path / "all"), driver=False).state_private


def test_nvml_that_is_opened_past_what_stands_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the user's that comes first, and not where nothing is to stand there."""
    real, own = build_standin_nvml(tmp_path / "real"), build_standin_nvml(tmp_path / "own")
    front = build_nvml(tmp_path / "front", real)
    code = "from jupyter_gpu.doctor import probe; print(probe.collect_facts(driver=True).nvml)"

    def said(*folders: Path) -> str:
        path = ":".join(map(str, folders))
        env = {**os.environ, "LD_LIBRARY_PATH": path, "STANDIN_NVML": "/dev/null"}
        return subprocess.check_output([sys.executable, "-c", code], env=env, text=True).rstrip()

    assert said(front, own.parent) == ""
    assert said(own.parent, front) == str(own)
    assert said(own.parent) == ""
    real.unlink()
    assert said(front) == "", "NVML is missing"
    (finding,) = about("NVML", here=replace(FINE, nvml=str(own)))
    assert (finding.level, str(own) in finding.text, finding.advice != "") == (Level.NOTE, True, True)
    assert about("NVML") == []
    monkeypatch.setattr("jupyter_gpu_node.shares.gate_files.NVML_IN_POD", str(tmp_path / "pod"))
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    for text, meant in (("", False), ("NVML", True)):
        (tmp_path / "pod").write_text(text)
        monkeypatch.setattr("jupyter_gpu.doctor.probe._opened", lambda: "/lib/libnvidia-ml.so.1")
        assert probe.collect_facts(driver=False).nvml == ""
        monkeypatch.setattr("jupyter_gpu.doctor.probe._driver", lambda: ("580", ""))
        assert probe.collect_facts().nvml == ("/lib/libnvidia-ml.so.1" if meant else "")


def test_node_socket_is_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor tries whether the node plugin's socket answers."""
    path = tmp_path / "node.sock"
    monkeypatch.setenv("JUPYTER_GPU_NODE_SOCKET", str(path))
    assert probe.collect_facts(driver=False).socket_trouble == os.strerror(2)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert probe.collect_facts(driver=False).socket_trouble == ""
    assert probe.collect_facts(driver=False).socket_trouble == os.strerror(111)


def test_extensions_are_read_as_by_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enabled, disabled and missing extensions are distinguished; an invalid file counts as none."""
    for name in ("JUPYTER_CONFIG_PATH", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    server, lab = tmp_path / "jupyter_server_config.d", tmp_path / "labconfig"
    server.mkdir()
    lab.mkdir()
    for chosen, said in ((True, "enabled"), (False, "disabled")):
        text = json.dumps({"ServerApp": {"jpserver_extensions": {"jupyter_gpu": chosen}}})
        (server / "jupyter_gpu.json").write_text(text)
        assert probe.collect_facts(driver=False).extension == said
    (lab / "page_config.json").write_text('{"disabledExtensions": {"jupyter-gpu": true}}')
    assert probe.collect_facts(driver=False).labextension_disabled
    (lab / "page_config.json").write_text("{")
    assert not probe.collect_facts(driver=False).labextension_disabled


def doctor(server: Server, **env: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and the findings by subject."""
    done = server.cli("doctor", "--json", env=env)
    assert done.stderr == ""
    body = json.loads(done.stdout)
    assert body["problems"] == sum(finding["level"] == "problem" for finding in body["findings"])
    return done.returncode, {finding["about"]: finding for finding in body["findings"]}


def test_real_server_is_examined(server: Server) -> None:
    """The server, its state directory, its mode and its kernels are found; problems give exit code 1."""
    with server.kernel():
        code, found = doctor(server, CUDA_VISIBLE_DEVICES="5")
    wrong = {name for name, finding in found.items() if finding["level"] == "problem"}
    assert (code == DONE) == (not wrong)
    assert wrong <= {"labextension", "extension"}  # in a source tree that was not installed
    assert found["server"]["level"] == "ok"
    assert str(server.folder / "state") in found["state"]["text"]
    assert "soft mode was asked for" in found["SoftMode"]["text"]
    assert found["Simulated"]["level"] == "note"
    assert found["kernels"]["text"] == "The kernel that runs is ready for GPUs that come later."
    assert "'5' here" in found["CUDA_VISIBLE_DEVICES"]["text"]


def test_server_of_another_version_is_named(server: Server) -> None:
    """A server that does not know the request is reported as another version, not as missing."""
    code, found = doctor(server, JUPYTER_GPU_URL=f"{server.url}jupyter-gpu/api/", JUPYTER_GPU_TOKEN=server.token)
    assert code == ERROR
    assert "another version of jupyter-gpu" in found["server"]["text"]


def test_kernel_without_the_guard_is_named(server: Server) -> None:
    """A kernel with its own provisioner, or started in an unknown way, is named with the reason."""
    import sys

    specs = server.folder / ".local" / "share" / "jupyter" / "kernels"
    start = f"{sys.executable} -m ipykernel_launcher -f $0"
    for name, about in (
        ("own", {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                 "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}}),
        ("odd", {"argv": ["bash", "-c", f"ssh-agent {start}", "{connection_file}"]}),
    ):  # fmt: skip
        (specs / name).mkdir(parents=True)
        (specs / name / "kernel.json").write_text(json.dumps({**about, "display_name": name, "language": "python"}))
        kernel = server.rest("POST", "api/kernels", {"name": name})["id"]
        found = await_(lambda: doctor(server)[1].get("kernels"))
        server.rest("DELETE", f"api/kernels/{kernel}")
        assert (found["level"], f"Kernel {name} ({kernel[:8]})" in found["text"]) == ("note", True)
        said = "provisioner of its own" if name == "own" else "not known how its command starts"
        assert said in found["text"]
        assert "import it before the first CUDA call" in found["advice"]


def test_text_fits_a_narrow_terminal(tmp_path: Path) -> None:
    """It works without a server, too; lines fit, words are whole, and a summary comes last. Nothing is changed."""
    from subprocess import run
    from sys import executable

    env = {**environment(tmp_path), "COLUMNS": "60"}
    before = sorted(tmp_path.rglob("*"))
    done = run([executable, "-m", "jupyter_gpu.cli", "doctor"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ERROR, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("problem  No Jupyter server was found") for line in lines)
    assert max(len(line) for line in lines if "/" not in line) <= 60
    assert lines[-1].endswith(("problem.", "problems."))
    assert sorted(tmp_path.rglob("*")) == before
