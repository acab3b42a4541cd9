"""Figures and details beside views and samples."""
