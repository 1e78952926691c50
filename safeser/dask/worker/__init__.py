"""What safeser adds to Dask's workers and nannies."""
