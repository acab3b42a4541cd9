"""The commands of ``jupyter gpu``, what they share, and their equivalents in notebooks."""
