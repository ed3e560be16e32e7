"""Whether every way to train takes the steps of one tower."""
