"""The process of root that counts the GPU-hours of a machine's users."""
