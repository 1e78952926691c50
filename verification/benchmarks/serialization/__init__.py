"""How often objects are pickled on ``safeser://`` and ``tcp://``, and what small calls cost.

The one rule: all clusters are up at once and take turns, so that ratios are of one run.
"""
