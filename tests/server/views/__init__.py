"""Names and notes that the server adds to views, and events of their changes."""
