"""Towers cut into stages, which pass micro-batches on."""
