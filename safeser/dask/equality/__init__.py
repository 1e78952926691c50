"""Whether two definitions of one key say the same, and what differs."""
