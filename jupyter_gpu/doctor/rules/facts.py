"""The facts found in one place: where a server runs, or where the command does. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from jupyter_gpu.model import strict

_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class KernelFact:
    """A kernel that runs."""

    name: str
    """Name of its kernel spec."""
    kernel: str
    """Its id."""
    why: str = ""
    """Reason it has no CUDA guard; empty if it has one or needs none."""

    @classmethod
    def from_json(cls, value: Any, key: str = "kernel") -> KernelFact:
        """Checked; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(*(strict.required(body, name, _text) for name in ("name", "kernel", "why")))


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about one environment. Texts are empty where there is nothing to tell."""

    version: str = ""
    """Version of jupyter-gpu."""
    python: str = ""
    prefix: str = ""
    """Installation prefix of that Python."""
    extension: str = ""
    """State of the server extension: ``enabled``, ``disabled`` or ``missing``."""
    labextension: str = ""
    """Version of the JupyterLab extension."""
    labextension_disabled: bool = False
    visible: str = ""
    """CUDA_VISIBLE_DEVICES where we did not set it."""
    gate: bool = False
    """Whether this installation can share out GPU time."""
    state: str = ""
    """The state directory, on one machine."""
    state_trouble: str = ""
    """Reason it cannot be used."""
    state_private: bool = False
    """Whether other users of the machine cannot use it, so that their servers do not know of ours."""
    driver: str = ""
    """Version of NVIDIA's driver."""
    driver_trouble: str = ""
    """Reason it cannot be asked."""
    nvml: str = ""
    """NVML's file, if it was opened past the library that stands before it here."""
    devices: int = 0
    """Device nodes of GPUs in /dev."""
    socket: str = ""
    """Socket of the node plugin, in a cluster."""
    socket_trouble: str = ""
    """Reason there is no answer from it."""
    token: bool = False
    """Whether the pod has a token for the API server."""
    kernels: tuple[KernelFact, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return {name: _shown(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, value: Any) -> Facts:
        """Checked; raises `FieldError`. What a newer version tells is left out."""
        body = strict.an_object(value, "facts")
        found: dict[str, Any] = {}
        for name, kind in cls.__annotations__.items():
            if name == "kernels":
                found[name] = strict.optional(body, name, strict.list_of(KernelFact.from_json, 4096)) or ()
            elif kind == "bool":
                found[name] = strict.optional(body, name, strict.boolean) or False
            elif kind == "int":
                found[name] = strict.optional(body, name, strict.integer(0, strict.MAX_GENERATION)) or 0
            else:
                found[name] = strict.optional(body, name, _text) or ""
        return cls(**found)


def _shown(value: Any) -> Any:
    return strict.printable(value, _MAX_TEXT) if isinstance(value, str) and value else value


def _text(value: Any, key: str) -> str:
    return "" if value == "" else strict.label(_MAX_TEXT)(value, key)
