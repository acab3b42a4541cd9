"""Tests that need Kubernetes, and `testbed`, which makes one."""
