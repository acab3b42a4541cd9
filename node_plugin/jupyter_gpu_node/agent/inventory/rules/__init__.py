"""Pure: the inventory annotation, and the uplink's use."""
