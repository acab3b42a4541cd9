"""Pure: names that a cell uses, and what of them is sent and comes back."""
