"""Stands for tensorflow.python.platform."""
