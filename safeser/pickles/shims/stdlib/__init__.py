"""Reviewed functions for values of the standard library."""
