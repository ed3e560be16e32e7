"""Benchmarks of single mechanisms."""
