"""NumPy: arrays, scalars, dtypes and sources of random numbers as typed values.

The one rule: bytes become an array only under a dtype and a shape that were checked against them.
"""
