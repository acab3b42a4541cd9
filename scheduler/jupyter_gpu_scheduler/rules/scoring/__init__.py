"""Pure: how good a node is for a pod."""
