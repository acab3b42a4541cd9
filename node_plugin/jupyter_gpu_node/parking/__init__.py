"""Parking on the node side: which processes are asked, in which order, and what they answer."""
