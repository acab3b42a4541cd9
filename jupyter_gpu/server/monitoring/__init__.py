"""Figures beside the view and the samples, for those who ask: nothing here is taken while nobody looks."""
