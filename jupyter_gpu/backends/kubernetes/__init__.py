"""The server in a pod of a Kubernetes cluster: it asks and reports; others decide and enforce."""

from .backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
