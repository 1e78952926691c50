"""Send exceptions as data, and build exceptions from received data.

The one rule: only text and plain values of a failure are sent; a received failure imports nothing
and runs no code.
"""
