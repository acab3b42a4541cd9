"""Pure: the inventory annotation, and the use of the uplink and of the machine."""
