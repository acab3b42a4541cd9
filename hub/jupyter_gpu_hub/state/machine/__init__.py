"""The store of objects of one machine without a cluster: files of root."""
