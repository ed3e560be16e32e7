"""Layouts as plain data: tasks, devices, towers, stages, parts of variables."""
