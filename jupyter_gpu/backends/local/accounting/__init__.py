"""The process of root that counts the GPU-hours of a machine's users, and knows whose each pod is in a hub."""
