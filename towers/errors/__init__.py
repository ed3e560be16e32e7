"""What goes wrong, and what it says to the user."""
