"""Compare two definitions of one key, and name what differs."""
