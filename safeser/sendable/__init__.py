"""Tell before an object is sent whether it can be, and if not, which part of it is to blame.

The one rule: nothing leaves the process. The object's own reducers run, as they do when it is sent.
"""
