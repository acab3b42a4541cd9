"""The service on a machine without a cluster."""
