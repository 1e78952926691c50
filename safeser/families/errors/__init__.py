"""Failures as data: what crosses instead of an exception, and what is raised for it.

The one rule: of a failure only text and plain values cross; nothing is imported or run for one.
"""
