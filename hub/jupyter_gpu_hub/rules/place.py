"""Pure: the words for the place whose GPUs are shared: a cluster, or one machine without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jupyter_gpu.model.message import gettext


class Place(NamedTuple):
    """The sentences that differ."""

    is_machine: bool
    no_limits: str
    """There can be no limits."""
    unknown: str
    """It was not looked at yet."""
    unheard: Callable[[str], str]
    """It can't be followed, for that reason."""
    cap: str
    """Reason the cap can't be changed here."""
    no_requests: str
    """Reason this service writes no requests of servers."""


CLUSTER = Place(
    is_machine=False,
    no_limits=gettext(
        "The cluster does not know GPU limits: the chart has not installed them, or somebody removed them."
    ),
    unknown=gettext("The cluster is not known yet; that takes a moment after the start."),
    unheard=lambda why: gettext("The cluster can't be followed now, so this may be out of date: %1", why),
    cap=gettext("The cap is for cluster administrators: it is changed with kubectl, or in the chart."),
    no_requests=gettext(
        "This service does not write requests of servers: an administrator can allow it (hub.write in the "
        "values of the chart)."
    ),
)
MACHINE = Place(
    is_machine=True,
    no_limits="",  # without a file there are none, and one can be made
    unknown=gettext("This machine is not known yet; that takes a moment after the start."),
    unheard=lambda why: gettext("What is shown of this machine may be out of date: %1", why),
    cap=gettext(
        "The cap is for administrators of the machine: it is changed with %1.",
        "sudo jupyter gpu limits set --machine cap",
    ),
    no_requests=gettext(
        "Each server of this machine takes and gives back its GPUs itself; no requests are written here."
    ),
)
