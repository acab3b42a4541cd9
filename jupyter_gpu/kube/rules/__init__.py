"""Pure: readers of Kubernetes objects, and their addresses."""
