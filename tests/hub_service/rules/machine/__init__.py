"""Rules of the objects of a machine."""
