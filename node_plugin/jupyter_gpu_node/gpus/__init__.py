"""Sources of GPUs: NVIDIA's through NVML, simulated ones, and the registry of those seen."""
