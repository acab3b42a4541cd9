"""Record of the shares last served here, so that programs go on if the API server is away when the plugin starts.

It is written before a device is opened, and rules stay as they are until the API server answers. So a pod that is not
in it had no share, or had lost it, and waits.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.protocol import NO_LIMIT
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.server.paths import checked

MAX_BYTES = 4 * 2**20
Served = Mapping[str, Mapping[str, Terms]]
"""Terms by GPU and pod."""
_log = logging.getLogger(__name__)
_milli = strict.integer(0, MILLI_PER_GPU)
_limit = strict.integer(0, min(NO_LIMIT - 1, strict.MAX_GENERATION))


def load(path: Path, boot: str) -> Served:
    """Return the record; nothing if there is no file, or it is of another ``boot``, or it is bad and put aside."""
    try:
        with path.open("rb") as file:
            return parse(file.read(MAX_BYTES + 1), boot)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("Which shares were served last cannot be read in %s: %s", path, error)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".broken"))
        return {}


def save(path: Path, served: Served, boot: str) -> None:
    """Replace the file; the old or the new one is there whatever happens. Raises `OSError`.

    It need not outlive the machine, for containers do not: the disk is not waited for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_bytes(serialize(served, boot))
    draft.replace(path)


def serialize(served: Served, boot: str) -> bytes:
    """Return the text of the file."""
    gpus = {gpu: {pod: _plain(terms) for pod, terms in pods.items()} for gpu, pods in served.items()}
    return strict.dumps({"version": 1, "boot": boot, "gpus": gpus}).encode()


def parse(text: bytes, boot: str) -> Served:
    """Parse the text of the file. Raises `ValueError`; so nothing is served that could not have been."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "What was served")
    strict.required(body, "version", strict.integer(1, 1))
    if strict.required(body, "boot", strict.text(64)) != boot:
        return {}
    return {checked(gpu): _pods(pods, gpu) for gpu, pods in strict.required(body, "gpus", strict.an_object).items()}


def _plain(terms: Terms) -> Mapping[str, int]:
    return {"milli": terms.milli} if terms.limit is None else {"milli": terms.milli, "limit": terms.limit}


def _pods(value: object, gpu: str) -> Mapping[str, Terms]:
    found = {checked(pod): _terms(strict.an_object(one, pod)) for pod, one in strict.an_object(value, gpu).items()}
    if (total := sum(terms.milli for terms in found.values())) > MILLI_PER_GPU:
        raise ValueError(f"Shares of {gpu} are together {total} thousandths of it.")
    return found


def _terms(body: Mapping[str, object]) -> Terms:
    return Terms(strict.required(body, "milli", _milli), strict.optional(body, "limit", _limit))
