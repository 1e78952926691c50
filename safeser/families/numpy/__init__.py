"""Encode and decode NumPy arrays, scalars, dtypes and random generators as typed values.

The one rule: bytes become an array only after its dtype and shape are checked against them.
"""
