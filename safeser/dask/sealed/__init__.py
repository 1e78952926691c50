"""Sealed calls: graphs that their author signs, no scheduler opens, and workers verify and run."""
