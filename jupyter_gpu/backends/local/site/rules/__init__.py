"""Pure: whether other servers see the same state directory, and which GPUs the site lets a server use."""
