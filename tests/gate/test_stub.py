"""The stub of a server waits for what a program does, whether or not it says so."""

import itertools
import socket

from jupyter_gpu_node.shares.rules.protocol import Done, encode

from .stub import Connection


def test_a_condition_may_come_true_without_a_message() -> None:
    """The last small copies of a program pass without a question, after the end of its last lease was said."""
    ours, theirs = socket.socketpair()
    connection, looks = Connection(ours), itertools.count()
    with theirs:
        theirs.sendall(encode(Done(None, 7, 1)))
        assert connection.charged_until(lambda: next(looks) > 3) == 7
    connection.close()
