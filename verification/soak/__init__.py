"""An hour of mixed work on a cluster that is being killed, cut and attacked all the while.

``python -m verification.soak --seconds 3600 --state DIR``. The one rule: what a client gets is
compared with what it computes by itself, and every future ends within a deadline.
"""
