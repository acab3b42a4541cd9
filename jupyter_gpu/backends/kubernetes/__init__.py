"""The backend in a pod of a Kubernetes cluster: it only requests and reports; scheduler and node plugin decide."""

from .backend import KubernetesBackend

__all__ = ["KubernetesBackend"]
