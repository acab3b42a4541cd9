"""Pure: facts about one place, and the findings that follow from them."""
