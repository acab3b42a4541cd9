"""Keys of a worker's sockets: both ends of a connection know each other's public key before it is made.

ZeroMQ's stock authenticator answers each handshake, in a thread. A stranger is refused before a byte of its messages
arrives, also one that knows the worker's public key.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

DOMAIN = "jupyter-gpu"
"""Domain of the sockets: the authenticator must be set up for the same one, as ``*`` stands only for an empty one."""
MAX_MESSAGE = 4 * 1024**3
"""Bytes of one part of a message."""
HANDSHAKE = 5_000
"""Milliseconds that a peer may take to prove its key."""
BEAT, SILENCE = 5_000, 15_000
"""Milliseconds between ZeroMQ's own heartbeats, and without one until the other end counts as gone."""


class Keys:
    """The keys that are allowed; the authenticator asks about each peer, in its thread."""

    def __init__(self, keys: Collection[str]) -> None:
        self.allow(keys)

    def allow(self, keys: Collection[str]) -> None:
        """Allow these from now on, in place of those before."""
        self._keys = frozenset(key.encode() for key in keys)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 - as it is called
        """Tell whether a peer with a key may connect."""
        return key in self._keys


def authenticator(context: zmq.Context[Any], keys: Keys) -> ThreadAuthenticator:
    """Start the authenticator of all sockets of a context; it must be stopped before the context ends."""
    made = ThreadAuthenticator(context)
    made.configure_curve_callback(DOMAIN, keys)
    made.start()
    return made


def serve(socket: zmq.Socket[Any], public: bytes, secret: bytes, *, ipv6: bool = False) -> None:
    """Have a socket, before it is bound, accept allowed keys only."""
    socket.curve_server = True
    socket.curve_publickey, socket.curve_secretkey = public, secret
    if socket.type == zmq.XPUB:
        socket.xpub_verbose = True  # each client is welcomed, also while another one is there
    socket.ipv6 = ipv6
    socket.zap_domain = DOMAIN.encode()
    socket.handshake_ivl = HANDSHAKE
    socket.maxmsgsize = MAX_MESSAGE
    socket.sndhwm = socket.rcvhwm = 0  # a lost message would be lost output
    socket.heartbeat_ivl, socket.heartbeat_timeout = BEAT, SILENCE
