"""Time shares of one GPU: who runs when, what is saved, and how shares follow use."""
