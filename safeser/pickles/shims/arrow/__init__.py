"""Reviewed functions for Arrow's values."""
