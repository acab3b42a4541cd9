"""Copies of what the API server and the hub know, and the writers of limits."""
