"""Pure: the key pairs of a notebook, one for each of its workers, and the ways to those that can be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jupyter_gpu.model.service import Peer, Service


class KeyPair(NamedTuple):
    """A key pair of this server for one worker."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public!r})"  # without what is secret


def lacking(service: Service | None, pairs: Mapping[str, KeyPair]) -> tuple[str, ...]:
    """Return the workers that have no key pair yet."""
    return tuple(worker.id for worker in service.workers if worker.id not in pairs) if service else ()


def kept(service: Service | None, pairs: Mapping[str, KeyPair]) -> dict[str, KeyPair]:
    """Return the key pairs of workers that are still there: an id is of one worker only, so others end."""
    return {name: pair for name, pair in pairs.items() if service and service.worker(name)}


def own(pairs: Mapping[str, KeyPair]) -> Peer:
    """Return what the pod says of its keys."""
    return Peer(keys=tuple(sorted((name, pair.public) for name, pair in pairs.items())))


def ways(service: Service | None, pairs: Mapping[str, KeyPair]) -> dict[str, Any]:
    """Return the workers that can be reached, each with the keys of both ends, for kernels of this server."""
    found = [
        {
            "id": worker.id,
            "node": worker.node,
            "milli": worker.milli,
            "relation": worker.relation.value,
            "address": worker.address,
            "port": worker.port,
            "key": worker.key,
            "revision": worker.revision,
            **pairs[worker.id]._asdict(),
        }
        for worker in (service.workers if service else ())
        if worker.ready and worker.id in pairs
    ]
    return {"workers": found}
