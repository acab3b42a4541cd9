"""Pure: all that decides which pod gets which GPUs."""
