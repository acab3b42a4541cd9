"""Pure: the JSON of a worker pod, which workers to create or remove, and what is told about them."""
