"""Pure: figures of a server for Prometheus."""
