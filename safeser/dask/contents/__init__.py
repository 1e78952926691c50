"""What Dask pickles inside of its messages, as data: failures, events, plans and shards."""
