"""TCP ports without a listener, which no client will be given."""

import random
import socket
from pathlib import Path

LOWEST = 10_000
"""Lowest of the chosen ports; those of well-known services are below."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Return different free ports; one may be taken before it is used, so callers try again.

    None is of the system's own range: while a server is away for a moment, any client of anybody could be given its
    port as the near end of a connection. Chosen at random, as several test runs choose side by side.
    """
    candidates = _outside()
    found: dict[int, socket.socket] = {}
    try:
        while len(found) < count:
            port = random.choice(candidates)
            if port not in found and (bound := _bound(host, port)):
                found[port] = bound
        return tuple(found)
    finally:
        for each in found.values():
            each.close()


def _outside() -> list[int]:
    """Return ports that the system gives to no client by itself (ip-sysctl, `ip_local_port_range`)."""
    lowest, highest = map(int, _RANGE.read_text().split())
    every = range(LOWEST, 65_536)
    return [port for port in every if not lowest <= port <= highest] or list(every)


def _bound(host: str, port: int) -> socket.socket | None:
    """Return a socket that has the port; None where it is taken."""
    made = socket.socket()
    try:
        made.bind((host, port))
    except OSError:
        made.close()
        return None
    return made
