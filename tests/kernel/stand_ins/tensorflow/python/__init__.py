"""Stands for tensorflow.python."""
