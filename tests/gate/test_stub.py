"""The stub of a server waits for what a program does, whether or not a message tells."""

import itertools
import socket

from jupyter_gpu_node.shares.rules.protocol import Done, encode

from .stub import Connection


def test_condition_may_become_true_without_a_message() -> None:
    """A program's last small copies pass without a request, after the end of its last lease was reported."""
    ours, theirs = socket.socketpair()
    connection, looks = Connection(ours), itertools.count()
    with theirs:
        theirs.sendall(encode(Done(None, 7, 1)))
        assert connection.charged_until(lambda: next(looks) > 3) == 7
    connection.close()
