"""The reports that `gpu.status()`, `gpu.usage()` and `gpu.machine()` return."""
