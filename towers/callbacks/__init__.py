"""Callbacks, which act between the steps of a run: checkpoints, evaluations, stops."""
