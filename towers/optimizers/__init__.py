"""From the mean gradient to the change of a variable: optimizers, weight decay, loss scale."""
