"""Pure: who may do what, tables, the text of pages, and what the mirror of groups has to write."""
