"""From the bytes of a pickle to inert nodes."""
