"""The server in a pod of a Kubernetes cluster: others decide and enforce, this only asks and tells."""

from .backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
