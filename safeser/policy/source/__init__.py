"""From the bytes of a policy file to plain, checked values."""
