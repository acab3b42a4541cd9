"""Scans for processes that have GPUs open: those of a pod, and strangers that were given none."""
