"""The node plugin's own record of the slots' owners, so that a restarted one knows which sockets to serve.

It is one small JSON file, replaced as a whole. A file that can't be read costs only that knowledge, which the kubelet
and the API server have too: it is put aside, and the record starts empty.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import MAX_GPUS
from jupyter_gpu_node.kubelet.rules.slots import PodRef, SlotOwner

MAX_BYTES = 4 * 2**20
_log = logging.getLogger(__name__)
_text = strict.text(256)


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """The contents of the checkpoint."""

    owners: Mapping[str, SlotOwner] = field(default_factory=dict)
    """Owners by slot."""
    allocated: Mapping[str, float] = field(default_factory=dict)
    """Time of the kubelet's last allocation, by slot, in seconds since 1970."""
    gated: frozenset[str] = frozenset()
    """Slots whose container got the gate in front of the driver."""
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Paths of GPUs, by slot, that its container was created with; no entry: not known."""


def load(path: Path) -> SlotRecord:
    """Load the record; an empty one where there is none, or none that can be read."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1))
    except FileNotFoundError:
        return SlotRecord()
    except (OSError, strict.FieldError) as error:
        _log.warning("The record of slots in %s can't be used and starts anew: %s", path, error)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".broken"))
        return SlotRecord()


def save(path: Path, record: SlotRecord) -> None:
    """Replace the record; either the old or the new one is there whatever happens meanwhile."""
    draft = path.with_suffix(f".{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft.open("wb") as file:
        file.write(serialize(record))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def parse(text: bytes) -> SlotRecord:
    """Parse the text of the file; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "the record")
    strict.required(body, "version", strict.integer(1, 1))
    items = strict.required(body, "slots", strict.list_of(_entry, 4096))
    return SlotRecord(
        {item.owner.slot: item.owner for item in items if item.owner is not None},
        {item.slot: item.when for item in items},
        frozenset(item.slot for item in items if item.gated),
        {item.slot: item.devices for item in items if item.devices is not None},
    )


def serialize(record: SlotRecord) -> bytes:
    """Return the text of the file."""
    slots = sorted({*record.owners, *record.allocated, *record.gated, *record.devices})
    return strict.dumps({"version": 1, "slots": list(_items(record, slots))}).encode()


def _items(record: SlotRecord, slots: Iterable[str]) -> Iterable[dict[str, Any]]:
    for slot in slots:
        item: dict[str, Any] = {"slot": slot, "allocated": int(record.allocated.get(slot, 0))}
        if slot in record.gated:
            item["gated"] = True
        if (devices := record.devices.get(slot)) is not None:
            item["devices"] = sorted(devices)
        if owner := record.owners.get(slot):
            pod = {"uid": owner.pod.uid, "namespace": owner.pod.namespace, "name": owner.pod.name}
            item |= {"pod": pod, "container": owner.container}
        yield item


@dataclass(frozen=True, slots=True)
class _SlotEntry:
    """The checkpoint's entry for one slot."""

    slot: str
    when: float
    gated: bool
    devices: frozenset[str] | None
    owner: SlotOwner | None


def _entry(value: Any, key: str) -> _SlotEntry:
    body = strict.an_object(value, key)
    slot = strict.required(body, "slot", _text)
    when = strict.required(body, "allocated", strict.integer(0, 2**53 - 1))
    gated = strict.optional(body, "gated", strict.boolean) or False
    devices = strict.optional(body, "devices", strict.list_of(strict.text(512), MAX_GPUS))
    pod = strict.optional(body, "pod", strict.an_object)
    owner = None
    if pod is not None:
        ref = PodRef(*(strict.required(pod, name, _text) for name in ("uid", "namespace", "name")))
        owner = SlotOwner(slot, ref, strict.required(body, "container", _text))
    return _SlotEntry(slot, when, gated, None if devices is None else frozenset(devices), owner)
