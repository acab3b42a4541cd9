"""``jupyter gpu doctor``: what is found here and in the server, and what to do about it. It changes nothing."""
