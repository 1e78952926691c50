"""pandas: frames, series, indexes, arrays and scalars as typed values.

The one rule: exact or refused with the name of the column; pandas infers nothing.
"""
