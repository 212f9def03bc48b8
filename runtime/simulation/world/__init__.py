"""A living world: its processes, users and time."""
