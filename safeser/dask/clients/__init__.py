"""What safeser adds to Dask's client: sealing, comparing and collecting values."""
