"""The settings of a run: what there is, what goes together, and the command line."""
