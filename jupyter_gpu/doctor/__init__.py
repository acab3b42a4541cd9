"""``jupyter gpu doctor``: findings about this environment and the server, with advice. It changes nothing."""
