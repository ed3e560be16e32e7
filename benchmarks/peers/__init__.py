"""The same models and training steps in other systems, for comparison."""
