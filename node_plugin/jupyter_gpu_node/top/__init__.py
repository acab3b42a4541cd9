"""The terminal view ``jupyter-gpu-node top``."""
