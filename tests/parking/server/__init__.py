"""Tests of the socket of parking."""
