"""Runs in a notebook's pod: asks its Jupyter server for a GPU and notes when a device begins to open.

    python3 _in_pod.py TURNS TOKEN DEVICE…

Prints JSON: milliseconds of each turn, growing and shrinking. Everything is on one clock in one process.
"""

import http.client
import json
import os
import sys
import threading
import time

FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
PATIENCE = 60.0
POLL = 0.0005
"""Seconds between two attempts to open: a loop without rest would take a processor from what is measured."""
REST = 0.1
"""Seconds between two turns; the floor rests as long."""


def main() -> None:
    """One turn is 0 → 1 → 0."""
    turns, token, paths = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    line = http.client.HTTPConnection("127.0.0.1", 8888, timeout=PATIENCE)
    found: dict[str, list[float]] = {"grow": [], "shrink": []}
    for _ in range(turns):
        found["grow"].append(turn(line, token, 1, paths))
        found["shrink"].append(turn(line, token, 0, paths))
    print(json.dumps(found))


def turn(line: http.client.HTTPConnection, token: str, gpus: int, paths: list[str]) -> float:
    """Milliseconds from before the request to the first attempt with the other answer."""
    began = time.monotonic()
    asking = threading.Thread(target=ask, args=(line, token, gpus))
    asking.start()
    while any(map(opens, paths)) != bool(gpus):
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"Waited {PATIENCE:.0f} s for a device {'to open' if gpus else 'to be closed'}.")
        time.sleep(POLL)
    took = time.monotonic() - began
    asking.join()
    settle(line, token)
    return took * 1000


def settle(line: http.client.HTTPConnection, token: str) -> None:
    """What comes after (the record that all is done, and who hears of it) is over before the next turn begins."""
    while True:
        time.sleep(REST)
        line.request("GET", "/jupyter-gpu/api/v1/status", headers={"Authorization": f"token {token}"})
        if json.loads(line.getresponse().read())["settled"]:
            return


def ask(line: http.client.HTTPConnection, token: str, gpus: int) -> None:
    """PUT, and read the answer."""
    headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
    line.request("PUT", "/jupyter-gpu/api/v1/request", json.dumps({"gpus": gpus}), headers)
    answer = line.getresponse()
    text = answer.read()
    if answer.status != 200:
        print(text.decode(errors="replace"), file=sys.stderr)


def opens(path: str) -> bool:
    """One attempt."""
    try:
        os.close(os.open(path, FLAGS))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
