"""What the arbiter reads of the records, without their lock: one is replaced in one step, and nothing is written."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from ..neighbours import Neighbour, survey
from ..store import Session
from . import places

_POD = re.compile(r"[0-9a-f]{32}")
_LINK = re.compile(r"[0-9a-f]{16}")
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


def traces(state: Path, home: Path) -> dict[Path, str]:
    """What there is of pods, with the beginning of their uids: folders of ours, and links to where sockets are."""
    found: dict[Path, str] = {}
    for folder, name in ((home, _POD), (state / places.GATES, _LINK)):
        with contextlib.suppress(OSError):
            found |= {folder / one: one[: places.SHORT] for one in os.listdir(folder) if name.fullmatch(one)}  # noqa: PTH208
    return found


def tidy(found: Mapping[Path, str], known: Collection[str]) -> None:
    """Remove what is left of pods that are no more; ``known`` are those of which there was a record after ``found``."""
    beginnings = {pod[: places.SHORT] for pod in known}
    for path, pod in found.items():
        if pod not in beginnings:
            places.part(path)
            shutil.rmtree(path, ignore_errors=True)
