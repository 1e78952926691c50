"""What the source documents say of serialization in Dask, one module per document."""
