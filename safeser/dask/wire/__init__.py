"""What Dask says as bytes and back: structure alone, bounded before it is read."""
