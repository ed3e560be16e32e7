"""What is done around the steps of a run: checkpoints, evaluations, stops."""
