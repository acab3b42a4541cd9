"""A real hub with the service beside it on one machine, whose GPUs are simulated and whose limits are in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from jupyter_gpu.model.limits import machine_use
from jupyter_gpu_hub.rules.machine.limit_document import read
from jupyter_gpu_hub.rules.removed import OBJECT
from tests.cluster.testbed import ControlPlane, until
from tests.devices import first_minor
from tests.hub import SECONDS
from tests.hub_service import world as worlds
from tests.hub_service.world import HUB, World

COUNTING = """
import sys
from jupyter_gpu_node.gpus import simulated
simulated.FIRST_MINOR = int(sys.argv.pop(1))
from jupyter_gpu.backends.local.accounting.__main__ import main
sys.exit(main())
"""
"""The process that counts, with device numbers of this worker."""


class MachineWorld(World):
    """The hub, the service, and the files of root. There is no API server: what needs ``plane`` fails."""

    def __init__(self, folder: Path) -> None:
        super().__init__(cast("ControlPlane", None), folder)
        self.state = folder / "state"
        self.lasting = folder / "lasting"
        self.file = self.state / "limits.json"

    def store(self) -> dict[str, Any]:
        """Return the settings of the service that say where limits are."""
        places = {"limits": str(self.file), "state": str(self.state), "folder": str(self.lasting)}
        return {"store": "machine", "machine": places}

    def put(self, *limits: Mapping[str, Any], **more: Any) -> None:
        """Write the file by hand."""
        self.file.write_text(json.dumps({"limits": limits, **more}))

    def put_limit(self, name: str, **more: Any) -> dict[str, Any]:
        """Add a limit by hand: ``metadata`` and the ``spec``. The file has no names, so ``name`` is not kept."""
        made = {"metadata": more.pop("metadata", {}), "spec": more}
        items = json.loads(self.file.read_text())["limits"] if self.file.exists() else []
        self.put(*items, made)
        return made

    def limit(self, name: str) -> dict[str, Any]:
        """Return a limit as an object."""
        if name == OBJECT:
            found: dict[str, Any] = json.loads((self.lasting / f"{OBJECT}.json").read_text())
            return found
        return read(self.file.read_bytes(), HUB).objects[name]

    def kube(self, method: str, path: str, body: Any = None) -> Any:
        """Return all limits, which is all that the file can be asked for."""
        assert (method, path, body) == ("GET", worlds.LIMITS, None)
        return {"items": list(read(self.file.read_bytes() if self.file.exists() else None, HUB).objects.values())}

    def clear(self) -> None:
        """Remove all limits and the record of removed ones, and wait until the service has noticed."""
        (self.lasting / f"{OBJECT}.json").unlink(missing_ok=True)
        self.put()
        until(lambda: self.limits.gpu("GET", "limits").json["total"] == 0, SECONDS, "no limits")


@contextmanager
def counting(state: Path, lasting: Path, gpus: int = 3) -> Iterator[subprocess.Popen[bytes]]:
    """Have root's process count, with so many simulated GPUs."""
    words = ["--state-dir", str(state), "--folder", str(lasting), "--simulated-gpus", str(gpus)]
    with subprocess.Popen([sys.executable, "-c", COUNTING, str(first_minor()), *words]) as process:
        try:
            until((state / machine_use.NAME).exists, SECONDS, "the machine's GPUs to be written")
            yield process
        finally:
            process.kill()


@contextmanager
def running(folder: Path) -> Iterator[MachineWorld]:
    """Yield the world until the end of the block."""
    world = MachineWorld(folder)
    world.state.mkdir()
    world.state.chmod(0o1777)
    with counting(world.state, world.lasting), worlds.joined(world) as made:
        yield made
