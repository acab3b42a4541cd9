"""Pure: text for shells and terminals."""
