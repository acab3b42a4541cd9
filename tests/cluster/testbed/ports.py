"""TCP ports that nobody listens on."""

import socket


def free(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Different free ports; somebody else may take one before it is used, so whoever uses them tries again."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((host, 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()
