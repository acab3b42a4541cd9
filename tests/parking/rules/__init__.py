"""Tests of the rules of parking."""
