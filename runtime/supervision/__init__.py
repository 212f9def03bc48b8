"""Runs come and go: admission, loading, restoring, quarantine."""
