"""A run's session: its loop, what is done around a step, what is said of it."""
