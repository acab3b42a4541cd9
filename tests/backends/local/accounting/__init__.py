"""Tests of the process that counts GPU-hours."""
