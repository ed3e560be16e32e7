"""Pipelines: towers cut into stages, through which micro-batches pass."""
