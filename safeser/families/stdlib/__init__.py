"""The standard library as typed values.

The one rule: each is described by plain values and made by its own constructor, within bounds.
"""
