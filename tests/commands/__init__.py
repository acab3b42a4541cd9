"""The commands of ``jupyter gpu``, what they share, and their twins in notebooks."""
