"""Whether safeser does on each supported release of Dask what it does on the newest."""
