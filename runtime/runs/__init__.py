"""Runs in memory: model runs, code runs, and what they give to users' code."""
