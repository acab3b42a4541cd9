"""Pure: the words between a notebook and the first process of a worker, which starts and kills the worker's kernels.

Each is a JSON object with one field, its kind::

    first process, its stdin     {"serve": {"address": "127.0.0.1", "allow": ["<public key>"]}}
    first process, its stdout    {"serving": {"port": 40123, "key": "<public key>"}}
    notebook                     {"start": {"kernel": "<id>", "folder": "/home/ann", "python": "3.11", "owner": {…}}}
                                 {"kill": {"kernel": "<id>"}}     {"look": {}}     {"load": {}}
                                 {"tell": {"kernel": "<id>"}}
    first process, its stdin     {"allow": {"keys": ["<public key>"]}}     later, and so to its kernels
    first process                {"started": {"key": "…", "shell": 40124, "iopub": 40125, "stdin": 40126,
                                              "control": 40127}}
                                 {"killed": {"kernel": "<id>"}}     {"refused": {"why": "…"}}
                                 {"running": {"kernels": [{"kernel": "<id>", "owner": {…}}]}}
                                 {"told": {"kernel": "<id>", "alive": false, "memory": true}}
                                 {"loads": {"gpus": {"<uuid>": {"utilisation": 42.0, "memory": 1073741824}},
                                            "kinds": {"<uuid>": {"model": "NVIDIA H100", "memory": 85899345920}}}}
    first process, to a kernel   {"run": {"address", "public", "secret", "allow", "key", "port", "bulk", "interrupt",
                                         "end"}}
                                 {"take": {"folder": "/home/ann"}}     later, once

``run`` alone has a secret key; it goes through a pipe to a child process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import read_uuid
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.model.service import read_key
from jupyter_gpu.model.view import GpuLoad

MAX_BYTES = 32 * 1024
"""Bytes of one of these messages."""
MAX_KERNELS = 8
"""Kernels of a worker at a time."""
MAX_LOADS = 64
"""GPUs of which a worker tells load and kind."""
MAX_PACKAGES = 64
"""Packages whose versions a worker tells."""
PORT = 47100
"""The port of a worker pod's first process; those of its kernels follow, four for each, then one for large objects, and
one for each kernel's Dask workers."""
CHANNELS = 4
"""Ports of one kernel: shell, iopub, stdin, control."""
LAST_PORT = PORT + CHANNELS * MAX_KERNELS + 1 + MAX_KERNELS
"""The last port of a worker's pod: behind the kernels' channels are one for large objects and Dask's of each kernel."""
_TEXT = strict.text(200)
_PATH = strict.text(4096)
_PORT = strict.integer(1, 65535)
_KEYS = strict.list_of(read_key, 4)

T = TypeVar("T", bound="Word")
U = TypeVar("U")


class Word:
    """A message; ``kind`` is its one field."""

    kind: ClassVar[str]
    reads: ClassVar[Mapping[str, Callable[[Any, str], Any]]]
    """The reader of each field."""

    def dump(self) -> bytes:
        """Return it as bytes."""
        return strict.dumps({self.kind: self.to_json()}).encode()

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)  # type: ignore[call-overload,no-any-return] # all are dataclasses


@dataclass(frozen=True)
class Serve(Word):
    """The first message of a first process: where it listens, and whose keys it allows."""

    address: str
    allow: tuple[str, ...]

    kind = "serve"
    reads: ClassVar = {"address": _TEXT, "allow": _KEYS}


@dataclass(frozen=True)
class Allow(Word):
    """The keys that are allowed from now on, in place of those before. Connections that are open go on."""

    keys: tuple[str, ...]

    kind = "allow"
    reads: ClassVar = {"keys": _KEYS}


@dataclass(frozen=True)
class Serving(Word):
    """The answer to it: where the first process listens for `Start` and `Kill`, and its public key."""

    port: int
    key: str

    kind = "serving"
    reads: ClassVar = {"port": _PORT, "key": read_key}


@dataclass(frozen=True)
class Start(Word):
    """A notebook that asks for a kernel in the worker, or for the one that it has there already."""

    kernel: str
    """Name that the notebook chose."""
    folder: str
    """Working directory; where it is missing there, the kernel keeps that of the first process."""
    python: str
    """Version of the notebook's Python, such as ``3.11``: pickled functions are of one version."""
    owner: ReservationOwner
    """The process that asks: the notebook's server ends the kernel when that process has ended."""

    kind = "start"
    reads: ClassVar = {"kernel": _TEXT, "folder": _PATH, "python": _TEXT, "owner": ReservationOwner.from_json}

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return {**asdict(self), "owner": self.owner.to_json()}


@dataclass(frozen=True)
class Take(Word):
    """The word that makes a kernel somebody's, once; until then it stands by."""

    folder: str
    """As in `Start`."""

    kind = "take"
    reads: ClassVar = {"folder": _PATH}


@dataclass(frozen=True)
class Started(Word):
    """The answer to both: the ports of the kernel, and the key with which its messages are signed."""

    key: str
    shell: int
    iopub: int
    stdin: int
    control: int

    kind = "started"
    reads: ClassVar = {"key": _TEXT, "shell": _PORT, "iopub": _PORT, "stdin": _PORT, "control": _PORT}


@dataclass(frozen=True)
class Kill(Word):
    """A notebook that ends its kernel in the worker, whatever that does."""

    kernel: str

    kind = "kill"
    reads: ClassVar = {"kernel": _TEXT}


@dataclass(frozen=True)
class Killed(Word):
    """The answer to it."""

    kernel: str

    kind = "killed"
    reads: ClassVar = {"kernel": _TEXT}


@dataclass(frozen=True)
class Look(Word):
    """A notebook's server that asks which kernels there are."""

    kind = "look"
    reads: ClassVar = {}


class KernelOf(NamedTuple):
    """A kernel of the worker, and the process of the notebook that it is for."""

    kernel: str
    owner: ReservationOwner

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"kernel": self.kernel, "owner": self.owner.to_json()}

    @classmethod
    def from_json(cls, value: Any, key: str) -> KernelOf:
        """Read the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(strict.required(body, "kernel", _TEXT), strict.required(body, "owner", ReservationOwner.from_json))


@dataclass(frozen=True)
class Running(Word):
    """The answer to it."""

    kernels: tuple[KernelOf, ...]

    kind = "running"
    reads: ClassVar = {"kernels": strict.list_of(KernelOf.from_json, MAX_KERNELS)}

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return {"kernels": [kernel.to_json() for kernel in self.kernels]}


@dataclass(frozen=True)
class Load(Word):
    """A notebook's server that asks how busy the worker's GPUs are, and of which kinds."""

    kind = "load"
    reads: ClassVar = {}


def read_loads(value: Any, key: str) -> dict[str, GpuLoad]:
    """Read loads by uuid; raises `FieldError`."""
    return _by_uuid(value, key, GpuLoad.from_json)


def read_kinds(value: Any, key: str) -> dict[str, GpuKind]:
    """Read kinds by uuid; raises `FieldError`."""
    return _by_uuid(value, key, GpuKind.from_json)


def _by_uuid(value: Any, key: str, reads: Callable[[Any, str], U]) -> dict[str, U]:
    body = strict.an_object(value, key)
    if len(body) > MAX_LOADS:
        raise strict.FieldError(gettext("%1 must have at most %2 GPUs.", repr(key), MAX_LOADS), key)
    return {read_uuid(uuid, key): reads(item, key) for uuid, item in body.items()}


@dataclass(frozen=True)
class Loads(Word):
    """The answer to it, by uuid; empty where the first process cannot know."""

    gpus: Mapping[str, GpuLoad] = field(default_factory=dict)
    kinds: Mapping[str, GpuKind] = field(default_factory=dict)

    kind = "loads"
    reads: ClassVar = {"gpus": read_loads, "kinds": read_kinds}

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return {
            "gpus": {uuid: load.to_json() for uuid, load in self.gpus.items()},
            "kinds": {uuid: one.to_json() for uuid, one in self.kinds.items()},
        }


@dataclass(frozen=True)
class Check(Word):
    """A doctor that asks what the notebook must have in the same version."""

    kind = "check"
    reads: ClassVar = {}


def read_versions(value: Any, key: str) -> dict[str, str]:
    """Read versions by package; raises `FieldError`."""
    body = strict.an_object(value, key)
    if len(body) > MAX_PACKAGES:
        raise strict.FieldError(gettext("%1 must have at most %2 packages.", repr(key), MAX_PACKAGES), key)
    return {_TEXT(name, key): _TEXT(version, key) for name, version in body.items()}


@dataclass(frozen=True)
class Checked(Word):
    """The answer to it: the version of Python, and those of packages that are compared."""

    python: str
    packages: Mapping[str, str]

    kind = "checked"
    reads: ClassVar = {"python": _TEXT, "packages": read_versions}

    def to_json(self) -> dict[str, Any]:
        """Return its fields."""
        return {"python": self.python, "packages": dict(self.packages)}


@dataclass(frozen=True)
class Tell(Word):
    """A notebook that asks how a kernel ended to which its connection was lost."""

    kernel: str

    kind = "tell"
    reads: ClassVar = {"kernel": _TEXT}


@dataclass(frozen=True)
class Told(Word):
    """The answer to it."""

    kernel: str
    alive: bool
    """Whether it is there."""
    memory: bool
    """Whether the system ended it because the worker had no memory left."""

    kind = "told"
    reads: ClassVar = {"kernel": _TEXT, "alive": strict.boolean, "memory": strict.boolean}


@dataclass(frozen=True)
class Refused(Word):
    """The answer to what cannot be done."""

    why: str

    kind = "refused"
    reads: ClassVar = {"why": strict.label(1000)}


@dataclass(frozen=True)
class Run(Word):
    """The first message of a kernel: where it listens, its key pair, whose keys it allows, and how it signs."""

    address: str
    public: str
    secret: str
    allow: tuple[str, ...]
    key: str
    port: int = 0
    """The first of its ports; 0: any."""
    bulk: int = 0
    """The port for large objects, of all kernels in turn; 0: any."""
    interrupt: int = 0
    """Seconds without a client after which it interrupts what runs; 0: never."""
    end: int = 0
    """Seconds without a client after which it ends; 0: never."""

    kind = "run"
    reads: ClassVar = {
        "address": _TEXT,
        "public": read_key,
        "secret": read_key,
        "allow": _KEYS,
        "key": _TEXT,
        "port": strict.integer(0, 65535 - CHANNELS),
        "bulk": strict.integer(0, 65535),
        "interrupt": strict.integer(0, 86_400),
        "end": strict.integer(0, 86_400),
    }

    @property
    def dask(self) -> int:
        """The port of its gateway for Dask; 0: any. Those of a worker's kernels follow the one for large objects."""
        first = self.bulk - CHANNELS * MAX_KERNELS
        return self.bulk + 1 + (self.port - first) // CHANNELS if self.bulk else 0

    def __repr__(self) -> str:
        return f"Run({self.address!r}, {self.public!r})"  # without what is secret


def read(data: bytes, *kinds: type[T]) -> T:
    """Return the message in some bytes, which must be one of ``kinds``; raises `strict.FieldError`."""
    body = strict.an_object(strict.loads(data, MAX_BYTES), "message")
    word = next((word for word in kinds if body.keys() == {word.kind}), None)
    if word is None:
        wanted = ", ".join(word.kind for word in kinds)
        raise strict.FieldError(gettext("The message must have one field, one of: %1.", wanted))
    fields = strict.an_object(body[word.kind], word.kind)
    return word(**{name: strict.required(fields, name, reads) for name, reads in word.reads.items()})


def wrong_python(there: str, here: str) -> str:
    """Return why the Pythons of a worker and a notebook do not go together; empty if they do."""
    if there == here:
        return ""
    return gettext(
        "The worker has Python %1 and this notebook %2: functions of one cannot be read by the other. "
        "Use a notebook image with the same Python for both.",
        strict.printable(there, 20),
        strict.printable(here, 20),
    )


def refusal(start: Start, python: str, kernels: int) -> str:
    """Return why a worker with some Python and some kernels does not start another one; empty if it does."""
    if why := wrong_python(python, start.python):
        return why
    if kernels >= MAX_KERNELS:
        return gettext("The worker has %1 kernels, as many as it may have: end one of the notebooks.", kernels)
    return ""
