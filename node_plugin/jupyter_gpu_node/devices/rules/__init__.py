"""Pure: device rules, the program that carries them out, and names of control groups."""
