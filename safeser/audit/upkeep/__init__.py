"""What is done with a log's files besides writing records: rotate, compress, remove, keep heads.

The one rule: a file is compressed or removed only when its process has ended it or died, and the
index says so before it happens.
"""
