"""Figures beside the view and the samples: each is taken only on request."""
