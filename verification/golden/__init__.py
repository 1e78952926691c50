"""Golden traces: the decisions of a real cluster on 84 workloads, recorded and compared.

``python -m verification.golden`` runs them and compares; ``--update`` records.
"""
