"""The backend of one machine, whose Jupyter servers divide its GPUs among themselves: no daemon, no cluster."""

from .backend import LocalBackend
from .settings import Settings, read_vendors

__all__ = ["LocalBackend", "Settings", "read_vendors"]
