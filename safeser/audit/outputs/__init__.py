"""Outputs of a log beside its file: counts for metrics, the last refusals, and sinks."""
