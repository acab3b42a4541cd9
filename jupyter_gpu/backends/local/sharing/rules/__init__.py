"""Pure: which pod may have which share, and the text of a revocation."""
