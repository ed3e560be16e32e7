"""Data sets by name: from files to one batch per tower and step."""
