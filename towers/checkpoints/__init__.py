"""Checkpoints of a run in its `--train_dir`, and notes on how the run ended."""
