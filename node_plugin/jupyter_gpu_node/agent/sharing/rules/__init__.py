"""Pure: the shares that the arbiter serves."""
