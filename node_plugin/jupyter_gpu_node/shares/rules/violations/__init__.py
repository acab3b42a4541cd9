"""Pure: programs that break the order of turns, and what becomes of them."""
