"""Pure: how an owner's maximum is divided among the owner's pods, and which of them give back when it is lowered."""
