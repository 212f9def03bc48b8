"""Runs as JSON lines: written from any store, checked by fsck's own rules, taken into any store."""
