"""What safeser adds to Dask's scheduler: owners of keys and tasks, and authority over workers."""
