"""Golden traces: what a real cluster decides of 84 workloads, recorded once and compared after.

``python -m tests.dask.golden`` runs them and compares; ``--update`` records.
"""
