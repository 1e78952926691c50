"""Connections of ``safeser://``: bytes of a socket, sessions and their ends."""
