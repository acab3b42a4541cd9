"""Tests of parking on the node side."""
