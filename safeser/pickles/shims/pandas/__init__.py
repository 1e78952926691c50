"""Reviewed functions for pandas' values."""
