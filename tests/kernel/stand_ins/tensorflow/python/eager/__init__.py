"""Stands for tensorflow.python.eager."""
