"""Reviewed functions for scikit-learn's values."""
