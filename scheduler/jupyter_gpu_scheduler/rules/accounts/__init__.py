"""Pure: what owners used, as it is written into their accounts."""
