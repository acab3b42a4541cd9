"""Processes of this machine: identity, open files, signals, and their ends."""
