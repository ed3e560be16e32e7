"""From the mean gradient to the change of a variable: optimizers and their settings."""
