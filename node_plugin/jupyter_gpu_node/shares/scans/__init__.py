"""Scans of a GPU's processes: their use of its time and memory, by share."""
