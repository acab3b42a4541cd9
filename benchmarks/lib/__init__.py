"""Parts that benchmarks share: figures, isolation, servers, simulators."""
