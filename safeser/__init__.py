"""safeser: a restricted deserialization gateway, for Dask and without it."""
