"""Measurements of what people wait for; each module's `run()` gives figures (see `figures`)."""
