"""The same models and steps on other systems, to compare with."""
