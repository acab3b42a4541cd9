"""`gpu` in a notebook: its methods, errors and public names."""
