"""Encode and decode types of the standard library as typed values.

The one rule: plain values describe each, and its own constructor builds it, within bounds.
"""
