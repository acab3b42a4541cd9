"""Time shares of one GPU: the order of turns, the savings, and the adjustment of shares to their use."""
