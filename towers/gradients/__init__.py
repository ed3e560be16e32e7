"""From the gradients of the towers to their mean."""
