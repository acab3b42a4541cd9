"""Tests of what the user of a notebook touches."""
