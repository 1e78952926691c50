"""What takes the place of CPython's unpickler, in a call or in a whole process."""
