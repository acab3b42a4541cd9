"""Figures in addition to views and samples: each is taken only on request."""
