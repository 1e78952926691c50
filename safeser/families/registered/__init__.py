"""Register classes, functions that serialize them, and families of the host program.

The one rule: the program registers a name once; no byte of a peer registers or imports anything.
"""
