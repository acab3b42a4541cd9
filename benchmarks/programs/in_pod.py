"""Runs in a notebook's pod: asks its Jupyter server for a GPU and notes when it can be used.

    python3 in_pod.py TURNS TOKEN DEVICE…

Prints JSON: milliseconds of each turn until a device opens, until a program may launch on the GPU as well, and until
none opens any more. Everything is on one clock in one process.
"""

import http.client
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
PATIENCE = 60.0
POLL = 0.0005
"""Seconds between two attempts to open: a busy loop would take a CPU from what is measured."""
REST = 0.1
"""Seconds between two turns; the floor rests as long."""
SHARES = Path("/run/jupyter-gpu/shares")
MESSAGE = struct.Struct("<BBHIQQQ")
ASK, GRANT = MESSAGE.pack(1, 1, 0, 0, 0, 0, 0), 16
"""The message by which the gate asks for the GPU before a program's first launch, and the kind of the answer."""


def main() -> None:
    """Run the turns; each is 0 → 1 → 0."""
    turns, token, paths = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    line = http.client.HTTPConnection("127.0.0.1", 8888, timeout=PATIENCE)
    found: dict[str, list[float]] = {"open": [], "launch": [], "shrink": []}
    for _ in range(turns):
        for name, moment in zip(("open", "launch"), turn(line, token, 1, paths), strict=True):
            found[name].append(moment)
        found["shrink"] += turn(line, token, 0, paths)
    print(json.dumps(found))


def turn(line: http.client.HTTPConnection, token: str, gpus: int, paths: list[str]) -> list[float]:
    """Return the milliseconds from before the request to the first attempts with the other answer."""
    began = time.monotonic()
    asking = threading.Thread(target=ask, args=(line, token, gpus))
    asking.start()
    until(lambda: any(map(opens, paths)) == bool(gpus), f"a device {'to open' if gpus else 'to be closed'}")
    moments = [time.monotonic()]
    if gpus:
        until(launches, "a turn on the GPU")
        moments.append(time.monotonic())
    asking.join()
    settle(line, token)
    return [(moment - began) * 1000 for moment in moments]


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition, with short pauses."""
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"Waited {PATIENCE:.0f} s for {what}.")
        time.sleep(POLL)


def settle(line: http.client.HTTPConnection, token: str) -> None:
    """Wait until later effects, such as the final record and its readers, are over before the next turn begins."""
    while True:
        time.sleep(REST)
        line.request("GET", "/jupyter-gpu/api/v1/status", headers={"Authorization": f"token {token}"})
        if json.loads(line.getresponse().read())["settled"]:
            return


def ask(line: http.client.HTTPConnection, token: str, gpus: int) -> None:
    """Send a PUT and read the answer."""
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    line.request("PUT", "/jupyter-gpu/api/v1/request", json.dumps({"gpus": gpus}), headers)
    answer = line.getresponse()
    text = answer.read()
    if answer.status != 200:
        print(text.decode(errors="replace"), file=sys.stderr)


def launches() -> bool:
    """Return whether the node gives the GPU to a program that asks for it."""
    for place in SHARES.glob("[!.]*.sock"):
        with socket.socket(socket.AF_UNIX) as gate:
            gate.settimeout(PATIENCE)
            try:
                gate.connect(str(place))
                gate.sendall(ASK)
                return gate.recv(MESSAGE.size)[1:2] == bytes([GRANT])
            except OSError:  # it belongs to the previous turn
                continue
    return False


def opens(path: str) -> bool:
    """Return whether the device opens."""
    try:
        os.close(os.open(path, FLAGS))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
