"""The guarded client: Dask's client for a cluster that runs no safeser, on ``tcp://`` or ``tls://``.

The one rule: this side only connects, and what it reads is converted to the form in which a peer on
``safeser://`` would have sent it, by reading alone; it then passes the same channel. What Dask's
own codec would import, unpickle or call because a peer says so, does not happen here.
"""
