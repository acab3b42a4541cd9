"""Pages, REST and the live connection, behind the hub's login."""
