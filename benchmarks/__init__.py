"""Measurements of what people wait for; each module's `run()` returns figures (see `figures`)."""
