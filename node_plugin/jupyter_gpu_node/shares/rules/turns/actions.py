"""The actions that follow from an event on one GPU, for its server. Pure."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_gpu_node.shares.rules.protocol import FromServer

from .served_share import ShareClient


class Send(NamedTuple):
    """A message for that client."""

    client: ShareClient
    message: FromServer


class Close(NamedTuple):
    """The end of messages for that client; it has left already."""

    client: ShareClient


class LeaseOverdue(NamedTuple):
    """Notice that these clients were asked for the GPU at ``since``, and the grace is over."""

    share: str
    since: int
    clients: tuple[ShareClient, ...]


Action = Send | Close | LeaseOverdue
