"""`jupyter-gpu-node top` beside the servers of one machine: it finds what their arbiter writes."""

import json
import subprocess
import sys
from typing import Any

from .machine import Machine
from .test_shares import HOG, share


def shown(machine: Machine) -> dict[int, dict[str, Any]]:
    """By what was allocated, the shares that it shows, once."""
    command = [sys.executable, "-m", "jupyter_gpu_node.command", "top", "--once", "--json", "--state"]
    said = subprocess.run([*command, str(machine.state)], capture_output=True, text=True, check=True).stdout
    return {one["allocated"]: one for one in json.loads(said)["shares"]}


def test_it_shows_the_shares_of_the_machine(machine: Machine) -> None:
    """Under the names of their servers' processes: those with work run, those without do not."""
    busy, idle = share(machine, 600), share(machine, 300)
    machine.run(busy, *HOG)
    machine.more(300)
    machine.until(lambda: (shown(machine)[600]["rates"] or {}).get("idle", 0) > 0, "the share to be seen at work")
    found = shown(machine)
    assert found[300]["rates"]["idle"] == 0
    assert {one["sharing"] for one in found.values()} == {1}
    assert {one["uuid"] for one in found.values()} == {machine.uuids[0]}
    for milli, server in ((600, busy), (300, idle)):
        assert found[milli]["name"] == f"{found[milli]['pod'][:8]} pid {server.pid}"
