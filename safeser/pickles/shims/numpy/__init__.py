"""Reviewed functions for NumPy's values."""
