"""Definitions from files: skills and agents."""
