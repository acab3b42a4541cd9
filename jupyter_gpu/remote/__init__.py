"""Cells and functions that run in another process, where the GPUs are."""

import sys

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of this Python, as far as pickled functions depend on it."""
