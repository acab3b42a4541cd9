"""Tests of the limits of a machine's users."""
