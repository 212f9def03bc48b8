"""Runs seen from any point of their lives: where two of them part, forks that go on from there."""
