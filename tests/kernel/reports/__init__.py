"""The reports of `gpu.status()`, `gpu.usage()` and `gpu.machine()`."""
