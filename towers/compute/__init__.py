"""A tower: the operations of a model, traced once and copied to its device."""
