"""Restricted pickle beside CPython's own unpicklers, on pickles that are generated and mutated.

The one rule it checks: whatever ``pickles.loads`` accepts, the C and the Python unpickler read as
an equal object, calling nothing but what ``pickles.inspect`` said; whatever it refuses, it refuses
with a SafeserError, and imports nothing.
"""
