"""Checks that every mode, reduction and layout takes the steps of one tower."""
