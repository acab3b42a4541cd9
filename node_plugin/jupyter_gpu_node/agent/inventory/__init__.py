"""The node's GPUs as the cluster sees them."""
