"""Evaluations: in a training run, or of the checkpoints in a folder."""
