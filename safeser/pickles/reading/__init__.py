"""Parse the bytes of a pickle into inert nodes."""
