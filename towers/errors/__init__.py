"""Errors, and the sentences that users see."""
