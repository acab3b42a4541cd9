"""Pure: messages, files and settings of time shares."""
