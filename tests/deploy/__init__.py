"""The tests of `deploy/` with real engines."""
