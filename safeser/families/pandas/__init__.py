"""Encode and decode pandas frames, series, indexes, arrays and scalars as typed values.

The one rule: a value arrives exactly as it was, or is refused with the name of its column; pandas
infers nothing.
"""
