"""Tests of cells that run in another process."""
