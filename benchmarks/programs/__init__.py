"""Programs that benchmarks run in other processes, in pods, or on a GPU."""
