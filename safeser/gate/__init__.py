"""The gate: which principal is at the other end, which bytes it sealed, and what it may hand over.

The one rule: no I/O, and nothing of safeser but itself; of other packages msgpack, cryptography and
NumPy. Callers move the bytes; this package says how many to read, what to write, and whether they
are authentic. ``docs/reference/envelope.md`` is the normative description of the envelope.
"""
