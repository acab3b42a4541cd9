"""What `gpu.status()`, `gpu.usage()` and `gpu.machine()` return."""
