"""The records of this machine's pods: the state directory, and how each server keeps its own and reads the others."""
