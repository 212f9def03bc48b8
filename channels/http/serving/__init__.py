"""Servers for the app, on both event loops, inside the caller's task group."""
