"""Pure: the turns of the shares of one GPU, their banks, books, memory and co-adjustment."""
