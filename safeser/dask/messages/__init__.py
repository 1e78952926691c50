"""One message from its structure to what Dask handles: classify, decide, record, build, reply."""
