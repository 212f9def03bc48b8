"""A run's state: a fold over its own events, and what can be read off it."""
