"""A run's session: its loop, the hooks around a step, the reports."""
