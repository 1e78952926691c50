"""What safeser costs, measured beside what it replaces; never a timed test.

The one rule: numbers are compared only within one run, in which the transports take turns.
"""
