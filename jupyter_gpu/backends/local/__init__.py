"""The GPUs of this machine, shared out by its Jupyter servers among themselves: no daemon, no cluster."""

from .backend import LocalBackend
from .settings import Settings

__all__ = ["LocalBackend", "Settings"]
