"""URLs of the API, by what they name; pure. Names come from outside: each part is quoted."""

from __future__ import annotations

from urllib.parse import quote

_CORE = "/api/v1"
_LEASES = "/apis/coordination.k8s.io/v1"
_OURS = "/apis/jupyter-gpu.io/v1alpha1"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def pods(namespace: str = "") -> str:
    """Return the path of all pods of a namespace, or of the cluster."""
    return f"{_in(namespace)}/pods"


def pod(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one pod; ``subresource`` such as ``status``."""
    return f"{pods(namespace)}/{_quoted(name)}{_sub(subresource)}"


def nodes() -> str:
    """Return the path of all nodes."""
    return f"{_CORE}/nodes"


def node(name: str, subresource: str = "") -> str:
    """Return the path of one node."""
    return f"{nodes()}/{_quoted(name)}{_sub(subresource)}"


def events(namespace: str = "") -> str:
    """Return the path of the events about the objects of a namespace; those about nodes are in ``default``."""
    return f"{_in(namespace)}/events"


def event(namespace: str, name: str) -> str:
    """Return the path of one event."""
    return f"{events(namespace)}/{_quoted(name)}"


def leases(namespace: str) -> str:
    """Return the path of the leases for elections."""
    return f"{_LEASES}/namespaces/{_quoted(namespace)}/leases"


def lease(namespace: str, name: str) -> str:
    """Return the path of one lease."""
    return f"{leases(namespace)}/{_quoted(name)}"


def limits() -> str:
    """Return the path of all ``GpuLimit`` objects; they are cluster-scoped."""
    return f"{_OURS}/gpulimits"


def limit(name: str, subresource: str = "") -> str:
    """Return the path of one ``GpuLimit``; ``subresource`` such as ``status``."""
    return f"{limits()}/{_quoted(name)}{_sub(subresource)}"


def accounts() -> str:
    """Return the path of all ``GpuAccount`` objects; they are cluster-scoped."""
    return f"{_OURS}/gpuaccounts"


def account(name: str, subresource: str = "") -> str:
    """Return the path of one ``GpuAccount``; ``subresource`` such as ``status``."""
    return f"{accounts()}/{_quoted(name)}{_sub(subresource)}"


def definition(plural: str) -> str:
    """Return the path of the CustomResourceDefinition of one of our kinds, such as ``gpulimits``."""
    return f"{_DEFINITIONS}/{_quoted(plural)}.jupyter-gpu.io"


def _in(namespace: str) -> str:
    return f"{_CORE}/namespaces/{_quoted(namespace)}" if namespace else _CORE


def _sub(subresource: str) -> str:
    return f"/{_quoted(subresource)}" if subresource else ""


def _quoted(part: str) -> str:
    if part in ("", ".", ".."):  # what a URL library would take for a way up
        raise ValueError(f"{part!r} is no name of a Kubernetes object.")
    return quote(part, safe="")
