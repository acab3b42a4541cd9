"""Pure: rights of users, tables, the text of pages, and the writes of the mirror of groups."""
