"""From a judged program to objects."""
