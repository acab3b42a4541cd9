"""Enforcement of the turns: processes that violate them are inspected, stopped and continued."""
