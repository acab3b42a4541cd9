"""Pure: slots, and what a container with one is given."""
