"""How variables and gradients meet: the modes of `--variable_update`."""
