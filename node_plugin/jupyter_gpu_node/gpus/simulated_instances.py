"""Simulated GPUs in MIG mode: ``python -m jupyter_gpu_node.gpus.simulated_instances DIRECTORY GPU [INSTANCE …]``.

The file ``instances/<uuid>`` of the directory of the simulated GPUs has the uuids of that one's instances, one a
line. Only root and the owner of the directory can write it: any other user could keep a GPU from all. It is in MIG
mode until the file is removed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jupyter_gpu_node.processes import trusted_file

FOLDER = "instances"
LIMIT = 4096


def read(directory: Path, uuid: str) -> frozenset[str] | None:
    """Return the uuids of a GPU's instances; None: it is not in MIG mode."""
    text = trusted_file.read_text(directory / FOLDER / uuid, directory, LIMIT)
    return None if text is None else frozenset(text.split())


def write(directory: Path, uuid: str, instances: frozenset[str] | None) -> None:
    """Put a GPU into MIG mode with these instances; None: switch MIG mode off."""
    path = directory / FOLDER / uuid
    if instances is None:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f".{uuid}.{os.getpid()}")
    draft.write_text("\n".join(sorted(instances)))
    draft.replace(path)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], frozenset(sys.argv[3:]))
