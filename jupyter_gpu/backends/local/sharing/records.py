"""What the arbiter reads of the records. No lock is taken: a record is replaced in one step, and nothing is written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..neighbours import Neighbour, survey
from ..store import Session

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def look(pods: Path, before: Mapping[str, Neighbour]) -> dict[str, Neighbour] | None:
    """All pods of this boot by uid, as they are now; None if the folder of their records is gone.

    What was known ``before`` stands for a record that is damaged: its server writes it again, or its last process ends.
    """
    try:
        folder = os.open(pods, _FOLDER)
    except FileNotFoundError:
        return None
    try:
        contents = Session(folder).read()
    finally:
        os.close(folder)
    found = {pod.uid: pod for pod in survey(contents.entries, "")}
    return {uid: before[uid] for uid in contents.damaged if uid in before and uid in contents.sockets} | found
