"""Records that contradict each other: one GPU, more than all of it given away. Who keeps it, and who loses it.

It happens where two schedulers wrote at once, or somebody wrote what is not theirs to write. Who has the GPU attached
keeps it before who was only promised it; then the lower ticket, then the older pod. What drains can't be taken and
counts first.
"""

from __future__ import annotations

from .decide import Decision
from .snapshot import ClusterSnapshot


def repair(snapshot: ClusterSnapshot, node: str) -> tuple[Decision, ...]:
    """Who loses which shares on ``node`` so that no GPU's ``allocated`` milli exceed 1000; nothing where none do.

    To be applied before `decide`, which then puts the losers in line.
    """
    raise NotImplementedError
