"""Configuration, start and end of a server."""
