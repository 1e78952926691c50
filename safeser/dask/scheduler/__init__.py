"""What safeser adds to Dask's scheduler: whose keys, tasks and workers are whose."""
