"""Arrow and polars: tables, arrays, scalars and types as typed values.

The one rule: buffers under a description of our own; no IPC stream of a peer is read.
"""
