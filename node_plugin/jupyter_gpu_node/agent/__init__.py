"""The agent: brings every pod of the node to what was decided, and publishes what is so."""
