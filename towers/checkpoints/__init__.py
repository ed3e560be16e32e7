"""What a run leaves in its `--train_dir`: checkpoints, and notes on how it ended."""
