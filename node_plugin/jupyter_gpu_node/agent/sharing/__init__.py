"""The time shares of the node's pods: what is served, taken away, measured."""
