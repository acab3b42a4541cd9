"""`gpu.machine()` and `jupyter gpu machine`: who has the GPUs, in a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jupyter_gpu.cli.codes import DONE
from jupyter_gpu.kernel.api import ServerGpus
from jupyter_gpu.kernel.reports.machine import MachineReport, lines
from jupyter_gpu.model.machine import GpuPart, Machine, MachineGpu, Server, Shown, Totals
from jupyter_gpu.model.view import GpuLoad
from tests.kernel.servers import serve
from tests.model import golden

CASES = {case["name"]: Machine.from_json(case["machine"]) for case in golden.load("machines")}


def test_report_lists_gpus_sums_and_line() -> None:
    """Each GPU has a line, in columns, with what is given back and what is free."""
    assert list(lines(CASES["two users"])) == [
        "GPU 0  Test 80GB  42 %  1 KiB of 80 GiB  you",
        "GPU 1  Test 80GB        80 GiB           ann in ~/more (port 8889) 0.25; bob (ended) 0.25 (being given back); "
        "0.5 free",
        "GPU 2  Test 80GB        80 GiB           not working",
        "0.5 of 3 GPUs of this machine are free; 2 servers wait.",
        "ann in ~/more (port 8889) wants 1 GPU more, number 1 in line.",
        "carl wants 2 GPUs, number 2 in line.",
    ]


def test_report_sums_other_users_and_nodes() -> None:
    """Other users are one sum, and so are all GPUs of a node in a cluster."""
    assert list(lines(CASES["own ones"])) == [
        "GPU 0  Test    1 B  you 0.4; others 0.6",
        "0 of 1 GPU of this machine is free; 1 server waits.",
    ]
    assert list(lines(CASES["sums"])) == ["2.5 of 8 GPUs of this node are free; nobody waits."]


def test_places_in_a_long_line_are_approximate() -> None:
    """The first places are exact; the own server is called `you`."""
    servers = (Server("ann", here=True, owed=500, position=1), Server("bob", has=1000, owed=1000, position=30))
    free = MachineGpu("GPU-0", 0, "T", 1, load=GpuLoad(3, None), parts=(GpuPart(1000, 1),))
    machine = Machine(Shown.EVERYBODY, Totals(1, 0, 1000, 2), (free,), servers)
    assert list(lines(machine))[1:] == [
        "0 of 1 GPU of this machine is free; 2 servers wait.",
        "you want 0.5 GPU, number 1 in line.",
        "bob wants 1 GPU more, about number 30 in line.",
    ]
    unplaced = replace(machine, servers=(Server("bob", owed=1000),), gpus=(replace(free, parts=(), healthy=True),))
    first, *_, last = lines(unplaced)
    assert first.endswith("free")
    assert last == "bob wants 1 GPU."


def test_command_prints_words_or_json(tmp_path: Path) -> None:
    """`jupyter gpu machine` prints words for people, and the same as JSON; in code the report shows itself."""
    with serve(tmp_path, tmp_path / "state", "--GpuExtension.enforcement=soft") as server:
        server.gpus(1)
        done = server.cli("machine")
        assert (done.returncode, done.stderr) == (DONE, "")
        first = done.stdout.splitlines()[0]
        assert first.startswith("GPU 0  Simulated GPU  0 %  0 B of 24 GiB")
        assert " are free; nobody waits." in done.stdout
        machine = Machine.from_json(json.loads(server.cli("machine", "--json").stdout))
        assert machine.totals.used == 1000
        gpu = ServerGpus()
        gpu.connect(server.url, server.token)
        report = gpu.machine()
        assert isinstance(report, MachineReport)
        assert repr(report).splitlines()[0] == first
        assert machine.shown is Shown.EVERYBODY
