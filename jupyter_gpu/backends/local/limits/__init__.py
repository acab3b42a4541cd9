"""Limits of users on one machine: the administrator's file, and the users and groups that it is about."""
