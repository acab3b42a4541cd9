"""Tests; what several of them share is imported from here: `from tests.lab import Lab`."""
