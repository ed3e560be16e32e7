"""How gradients meet variables: modes, optimizers, what is saved."""
