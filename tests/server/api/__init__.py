"""The REST API and the stream."""
