"""The turn engine: ``decide`` (what is due) and ``interpret`` (what an outcome means)."""
