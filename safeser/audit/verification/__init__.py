"""The parts of verification: one file's lines, one file's verdict, what the index says of files."""
