"""The process that counts the GPU-hours of this machine's users, for budgets and for ``jupyter gpu limits usage``.

python -m jupyter_gpu.backends.local.accounting [--state-dir STATE] [--folder FOLDER] [--simulated-gpus N]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from pathlib import Path

from jupyter_gpu.backends.local.records.store import StateStore
from jupyter_gpu.backends.local.settings import Settings
from jupyter_gpu.backends.local.sources import open_source
from jupyter_gpu.common import limits_file
from jupyter_gpu.common.hub_users import HubUsers
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu_node.gpus.source import GpuSource

from .account_files import AccountFiles, Unusable
from .accountant import Accountant
from .machine_gpus import MachineGpus

_log = logging.getLogger(__name__)


def main(arguments: list[str] | None = None) -> int:
    """Count until a signal ends it; it may be killed at any moment. Return 1 if it can't begin."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu.backends.local.accounting", description=__doc__)
    parser.add_argument("--state-dir", type=Path, default=default_path(), help="shared by the servers (%(default)s)")
    parser.add_argument(
        "--folder", type=Path, default=limits_file.LASTING, help="for the hours that outlive a boot (%(default)s)"
    )
    parser.add_argument("--simulated-gpus", type=int, default=0, metavar="N", help="as the setting of the servers")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    store = StateStore(given.state_dir.absolute())
    try:
        with store.locked():  # made where it is missing; of root, if we are
            trusted = {0, store.path.stat().st_uid}
        if os.geteuid() not in trusted:
            raise Unusable("Servers would not rely on it: run it as root, or as the owner of the state directory.")
        with AccountFiles(store.path, given.folder.absolute()) as files:
            hub = HubUsers(given.folder.absolute())
            hub.make_key()
            gpus = MachineGpus(partial(_source, store, given.simulated_gpus))
            gpus.start()
            Accountant(store, files, hub, gpus).run()
    except (BackendUnavailable, Unusable, OSError, strict.FieldError) as error:
        _log.error("%s", error)
        return 1
    except KeyboardInterrupt:
        _log.info("Nobody counts GPU-hours from now on.")
    return 0


def _source(store: StateStore, simulated: int) -> GpuSource:
    """Return the GPUs that servers of this machine can have, whether they can be guarded or not."""
    return open_source(Settings(simulated_gpus=simulated), store, lambda _: None, lambda: True)


if __name__ == "__main__":
    sys.exit(main())
