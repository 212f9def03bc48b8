"""Snapshots of long runs: what they are, and when one is due."""
