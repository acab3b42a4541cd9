"""Pure: the state of our pod, its view and its texts, from what cluster and node say."""
