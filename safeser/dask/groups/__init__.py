"""Worker groups: whose tasks run where, and who may read whose values."""
