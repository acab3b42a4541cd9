"""The agent: applies the decisions to every pod of the node, and publishes the result."""
