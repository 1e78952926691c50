"""What a log writes: its files in turn, events by the text of others, what waited for the disk.

The one rule: what is known about a file is a part of the value that one assignment replaces once
its records are there.
"""
