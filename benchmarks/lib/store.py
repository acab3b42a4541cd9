"""Puts thousands of objects at once into the store of a test's API server.

Through the API, 25,000 objects take many minutes of two processors. So one of each kind is created there and read back,
and its copies are put into etcd, a hundred in a transaction: the API server reads them as it reads its own.
"""

import base64
import json
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

TOGETHER = 100
"""Puts in one transaction; etcd takes 128."""
SECONDS = 60.0
"""Seconds for one transaction."""


def copies(made: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield copies of ``made``, which the API server has; ``changes`` replace fields of metadata and of spec."""
    metadata = {key: value for key, value in made["metadata"].items() if key != "resourceVersion"}
    for change in changes:
        own = {**metadata, **change.get("metadata", {}), "uid": str(uuid.uuid4())}
        yield {**made, "metadata": own, "spec": {**made["spec"], **change.get("spec", {})}}


def put(etcd: str, folder: str, objects: Iterable[Mapping[str, Any]], what: str) -> None:
    """Put objects into the folder of the store; print ``what`` they are meanwhile."""
    told, done = time.monotonic(), 0
    left = iter(objects)
    while some := list(islice(left, TOGETHER)):
        puts = [
            {"requestPut": {"key": _word(f"{folder}/{_name(one)}"), "value": _word(json.dumps(one))}} for one in some
        ]
        request = urllib.request.Request(f"{etcd}/v3/kv/txn", json.dumps({"success": puts}).encode())
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            answer.read()
        done += len(some)
        if time.monotonic() - told > 1:
            told = time.monotonic()
            print(f"\r{done:,} {what} ", end="", file=sys.stderr, flush=True)
    print(f"\r{done:,} {what}", file=sys.stderr)


def _name(one: Mapping[str, Any]) -> str:
    return str(one["metadata"]["name"])


def _word(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
