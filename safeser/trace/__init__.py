"""Show what a program serializes, by which family, how large and where.

The one rule: where nothing is traced, a function that serializes reads one tuple and does no more.
A trace holds names, sizes and times; it never holds the values themselves, nor text of them.
"""
