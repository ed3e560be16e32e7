"""What lies where: tasks, devices, towers, stages, parts of variables.  Plain data."""
