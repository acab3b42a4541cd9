"""Pure: messages, bundles, checks, host memory, and the order of steps of parks and returns."""
