"""Sweeps: the same attack against everything that a table lists, measured. ``make sweep``.

They take minutes and measure time and memory, so that they are commands and no tests.
"""
