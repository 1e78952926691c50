"""Verification: a folder of logs, one file, its lines, and what the index says of files."""
