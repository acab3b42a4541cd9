"""Pure: which GPUs of one node serve a wish, or why none can."""
