"""Read the bytes of a policy file into checked values."""
