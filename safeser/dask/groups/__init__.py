"""Worker groups: which workers run an author's tasks, and which principals read its values."""
