"""A simulated story as data: setup, steps, faults, and the history that comes of it."""
