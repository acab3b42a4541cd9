"""Prints a line for each critical error that the NVIDIA driver reports: ``{"uuid": …, "xid": …}``.

A process of its own (:mod:`.health`). It ends when its standard input is closed, or when the driver cannot tell.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

import pynvml

WAIT = 1000
"""Milliseconds between two looks at whether anybody still listens."""


def main() -> int:
    """Until the parent is gone."""
    try:
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
    except pynvml.NVMLError as error:
        print(f"The driver does not tell of errors: {error}", file=sys.stderr)
        return 1
    while not _deserted():
        try:
            event = pynvml.nvmlEventSetWait_v2(events, WAIT)
        except pynvml.NVMLError_Timeout:
            continue
        print(json.dumps(_line(event)), flush=True)
    return 0


def _line(event: Any) -> dict[str, Any]:
    uuid = pynvml.nvmlDeviceGetUUID(event.device)
    return {"uuid": uuid.decode() if isinstance(uuid, bytes) else uuid, "xid": int(event.eventData)}


def _deserted() -> bool:
    return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 1)


if __name__ == "__main__":
    sys.exit(main())
