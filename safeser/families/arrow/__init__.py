"""Encode and decode Arrow and polars tables, arrays, scalars and types as typed values.

The one rule: buffers are sent with safeser's own description; a peer's IPC stream is never read.
"""
